# SPDX-License-Identifier: Apache-2.0
"""Checks the driver, its GPUs, and the link of each GPU."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from spillway.doctor.finding import Finding, ok, problem, warning
from spillway.report.sizes import size

#: The driver interface that torch's CUDA 13 wheels need (cuDriverGetVersion).
NEEDED = 13000
EMULATE = "or run on the emulated GPU: spillway emulate"
PCI = Path("/sys/bus/pci/devices")

# Values of CUdevice_attribute.
_MAJOR, _MINOR, _DOMAIN, _BUS, _DEVICE = 75, 76, 50, 33, 34


def emulated() -> bool:
    return os.environ.get("SPILLWAY_EMULATE") == "1"


@cache
def library() -> Any:
    """The driver library, None where the machine has none."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None


@cache
def device_count() -> int:
    """The number of GPUs that are visible to a program."""
    count = ctypes.c_int()
    if library() is None or library().cuInit(0) != 0 or library().cuDeviceGetCount(ctypes.byref(count)) != 0:
        return 0
    return count.value


def name(index: int = 0) -> str:
    """As the driver calls the device. Requires: device_count() > index."""
    text, handle = ctypes.create_string_buffer(256), ctypes.c_int()
    library().cuDeviceGet(ctypes.byref(handle), index)
    library().cuDeviceGetName(text, 256, handle)
    return text.value.decode()


def driver() -> Iterator[Finding]:
    if emulated():
        yield ok("driver", "the emulated GPU (SPILLWAY_EMULATE=1)")
        return
    if library() is None:
        yield problem("driver", "libcuda.so.1 is missing", f"install NVIDIA's driver 580 or newer, {EMULATE}")
        return
    number = ctypes.c_int()
    library().cuDriverGetVersion(ctypes.byref(number))
    text = f"CUDA {number.value // 1000}.{number.value % 1000 // 10}"
    if number.value < NEEDED:
        yield problem(
            "driver", f"{text} is older than torch's CUDA 13", "install NVIDIA's driver 580 or newer"
        )
    else:
        yield ok("driver", text)


def devices() -> Iterator[Finding]:
    if emulated():
        return
    count = device_count()
    if count == 0:
        yield problem("GPU", "no GPU was found", f"check nvidia-smi, {EMULATE}")
    for index in range(count):
        yield from _device(index)


def _device(index: int) -> Iterator[Finding]:
    total, handle = ctypes.c_size_t(), ctypes.c_int()
    library().cuDeviceGet(ctypes.byref(handle), index)
    library().cuDeviceTotalMem_v2(ctypes.byref(total), handle)

    def attribute(number: int) -> int:
        value = ctypes.c_int()
        library().cuDeviceGetAttribute(ctypes.byref(value), number, handle)
        return value.value

    text = f"{name(index)}, {size(total.value)}, compute {attribute(_MAJOR)}.{attribute(_MINOR)}"
    yield ok(f"GPU {index}", text)
    yield from link(
        f"GPU {index}: link", f"{attribute(_DOMAIN):04x}:{attribute(_BUS):02x}:{attribute(_DEVICE):02x}.0"
    )


def link(what: str, address: str) -> Iterator[Finding]:
    """Of the device at this PCI address, if the kernel reports it."""
    try:
        now, most = (
            (
                (PCI / address / f"{which}_link_speed").read_text().strip(),
                int((PCI / address / f"{which}_link_width").read_text()),
            )
            for which in ("current", "max")
        )
    except (OSError, ValueError):
        return
    text = f"{now[0]}, {now[1]} lanes"
    if now[1] < most[1]:
        yield warning(
            what, f"{text} of {most[1]}", "offloading is limited by it: check the slot and its riser"
        )
    else:
        yield ok(what, text)
