# SPDX-License-Identifier: Apache-2.0
"""The emulated GPU's and its operators' accounting, by their C interfaces (emulator.h, operators.h)."""

from __future__ import annotations

import ctypes
import functools
import os
from typing import TYPE_CHECKING, Any, NamedTuple

from spillway.settings import LIBRARIES

if TYPE_CHECKING:
    import torch

__all__ = ["KINDS", "ROLES", "Accounting", "Assumed", "Block", "Ended", "assumed", "cost"]

# What a device is busy with, by the emulator's numbers.
KINDS = (
    "memory_bound",
    "products",
    "attention",
    "attention_backward",
    "copies_to_device",
    "copies_to_host",
    "collectives",
)

# What memory is for, by the operators' numbers.
ROLES = (
    "other",
    "parameters",
    "gradients",
    "optimizer_states",
    "inputs",
    "activations",
    "backward_temporaries",
    "optimizer_temporaries",
    "workspaces",
)


class Assumed(ctypes.Structure):
    """Assumptions about values that are not computed (spillway_emulator_assumptions)."""

    _fields_ = [(name, ctypes.c_double) for name in ("nonzero", "unique", "value", "finite")]


def assumed() -> Assumed:
    found = Assumed()
    ctypes.CDLL(None).spillway_emulator_assumed(ctypes.byref(found))
    return found


@functools.cache
def _cost() -> Any:
    function = ctypes.CDLL(None).spillway_emulator_cost
    function.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_double, ctypes.c_int, ctypes.c_int]
    return function


def cost(device: torch.device, moved: int, flops: float = 0.0, arithmetic: int = 0, kernel: int = 0) -> None:
    """Submits work to the device's current stream: bytes that are read and written, and operations. Their
    type and the kind of kernel are numbers of emulator.h."""
    import torch

    _cost()(torch.cuda.current_stream(device).cuda_stream, moved, flops, arithmetic, kernel)


class Block(NamedTuple):
    """The role of one allocation, and the operator and lines that made it; empty if unknown."""

    bytes: int
    role: str
    operator: str
    lines: str


class Ended(NamedTuple):
    """Out of memory: how often, the first request that did not fit, and the allocated bytes then."""

    times: int
    requested: Block
    allocated: int


class _Block(ctypes.Structure):
    _fields_ = (
        ("bytes", ctypes.c_uint64),
        ("name", ctypes.c_char_p),
        ("location", ctypes.c_char_p),
        ("role", ctypes.c_int),
    )

    def read(self) -> Block:
        name, location = (os.fsdecode(text or b"") for text in (self.name, self.location))
        return Block(self.bytes, ROLES[self.role], name, location)


class Accounting:
    """Of this process."""

    def __init__(self) -> None:
        self._emulator: Any = ctypes.CDLL(None)
        self._operators: Any = ctypes.CDLL(str(LIBRARIES / "libspillway_emulator_operators.so"))
        for name in ("end_ms", "busy_ms", "now_ms"):
            getattr(self._emulator, f"spillway_emulator_{name}").restype = ctypes.c_double
        for name in ("count", "host_peak"):
            getattr(self._emulator, f"spillway_emulator_{name}").restype = ctypes.c_uint64
        for name in ("at_peak", "out_of_memory"):
            getattr(self._operators, f"spillway_operators_{name}").restype = ctypes.c_size_t

    def watch_memory(self) -> bool:
        """Starts tracking. False if the allocator in use reports nothing."""
        return bool(self._operators.spillway_operators_watch_memory() == 0)

    def allocates_for(self, role: str) -> None:
        """Sets the role of later allocations of this thread; "other": by the operator that runs then."""
        self._operators.spillway_operators_allocates_for(ROLES.index(role))

    def set_role(self, at: int, role: str) -> None:
        self._operators.spillway_operators_set_role(ctypes.c_void_p(at), ROLES.index(role))

    def of_fetches(self, *roles: str) -> tuple[int, list[int]]:
        """The address of a function that is to be called with the address of fetched memory and its role, and
        the numbers of these roles."""
        function = ctypes.cast(self._operators.spillway_operators_fetched, ctypes.c_void_p)
        return function.value or 0, [ROLES.index(role) for role in roles]

    def at_peak(self, device: int) -> list[Block]:
        count = self._operators.spillway_operators_at_peak(device, None, ctypes.c_size_t(0))
        blocks = (_Block * count)()
        count = min(count, self._operators.spillway_operators_at_peak(device, blocks, ctypes.c_size_t(count)))
        return [each.read() for each in blocks[:count]]

    def out_of_memory(self, device: int) -> Ended | None:
        first, allocated = _Block(), ctypes.c_uint64()
        times = self._operators.spillway_operators_out_of_memory(
            device, ctypes.byref(first), ctypes.byref(allocated)
        )
        return Ended(times, first.read(), allocated.value) if times else None

    def end_ms(self, device: int) -> float:
        """When all that the device was given has ended."""
        return float(self._emulator.spillway_emulator_end_ms(device))

    def busy_ms(self, device: int) -> list[float]:
        """How long it has been busy, by KINDS."""
        return [float(self._emulator.spillway_emulator_busy_ms(device, kind)) for kind in range(len(KINDS))]

    def copied(self) -> tuple[int, int]:
        """Bytes that copies have brought to the host, and to the devices."""
        count = self._emulator.spillway_emulator_count
        return int(count(b"bytes_to_host")), int(count(b"bytes_to_device"))

    def pinned_peak(self) -> int:
        """The most bytes of the host's memory that were page-locked at once."""
        return int(self._emulator.spillway_emulator_host_peak())
