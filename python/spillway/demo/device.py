# SPDX-License-Identifier: Apache-2.0
"""Queries the driver for GPUs, without torch and the CUDA runtime."""

from __future__ import annotations

import ctypes

_CAPABILITY = (75, 76)  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR


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


def architecture() -> str:
    """The first device's, as compilers name it: sm_90. Requires: why_no_gpu() is None."""
    driver = ctypes.CDLL("libcuda.so.1")
    digits = ""
    for attribute in _CAPABILITY:
        value = ctypes.c_int(0)
        driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, 0)
        digits += str(value.value)
    return f"sm_{digits}"
