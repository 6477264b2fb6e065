# SPDX-License-Identifier: Apache-2.0
"""Live view of a running job."""
