# SPDX-License-Identifier: Apache-2.0
"""Queries the driver for GPUs, without torch and the CUDA runtime."""

from __future__ import annotations

import ctypes


def why_no_gpu() -> str | None:
    """None where the driver library loads and reports a device, otherwise the reason in a few words."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        count = ctypes.c_int(0)
        error = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    except (OSError, AttributeError):
        return "the driver library libcuda.so.1 cannot be loaded"
    if error:
        return f"the driver returns error {error}"
    return None if count.value > 0 else "the driver reports no device"
