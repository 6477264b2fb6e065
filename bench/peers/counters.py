# SPDX-License-Identifier: Apache-2.0
"""What the emulated GPU has seen, whichever library asked for it."""

from __future__ import annotations

import ctypes

import torch

_library = ctypes.CDLL(None)
_library.spillway_emulator_count.restype = ctypes.c_uint64
_library.spillway_emulator_count.argtypes = [ctypes.c_char_p]


def bytes_copied() -> tuple[int, int]:
    """To the device and to the host since the process began, after all that was queued."""
    torch.cuda.synchronize()
    return tuple(_library.spillway_emulator_count(name) for name in (b"bytes_to_device", b"bytes_to_host"))
