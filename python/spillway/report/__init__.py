# SPDX-License-Identifier: Apache-2.0
"""`spillway report`: renders the log of a job."""
