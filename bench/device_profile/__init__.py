# SPDX-License-Identifier: Apache-2.0
"""A profile for the emulated GPU, measured on a real one: `scripts/gpu_check --profile`."""
