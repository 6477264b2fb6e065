# SPDX-License-Identifier: Apache-2.0
"""The emulated GPU: whether this process runs on it, and whether it computes anything.

Both functions work before CUDA starts, and do not import torch::

    from spillway import emulator

    steps = 3 if emulator.is_emulated() else 10_000
"""

import ctypes

__all__ = ["is_dry_run", "is_emulated"]


def is_emulated() -> bool:
    """Whether CUDA in this process is the emulated GPU, as under ``spillway emulate`` and
    ``spillway dry-run``."""
    return hasattr(ctypes.CDLL(None), "spillway_emulator_shape_only")


def is_dry_run() -> bool:
    """Whether this process is a dry run (``spillway dry-run``): tensors have shapes, and no values are
    computed."""
    return is_emulated() and ctypes.CDLL(None).spillway_emulator_shape_only() != 0
