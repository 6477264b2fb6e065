# SPDX-License-Identifier: Apache-2.0
"""What a job did, from the log that it wrote: `spillway report`."""
