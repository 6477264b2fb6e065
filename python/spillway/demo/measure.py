# SPDX-License-Identifier: Apache-2.0
"""What a variant measures beside its losses. None of it changes a number that is trained on."""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

EMULATOR_COUNTS = ("host_syncs", "device_allocations", "host_registrations", "unordered")


def emulator_counts() -> dict[str, int]:
    """The emulated GPU's own counts since the process began; empty on a real GPU."""
    try:
        count = ctypes.CDLL(None).spillway_emulator_count
    except AttributeError:
        return {}
    count.restype, count.argtypes = ctypes.c_uint64, [ctypes.c_char_p]
    return {name: int(count(name.encode())) for name in EMULATOR_COUNTS}


def emulator_peak() -> int | None:
    """Physical bytes that the emulated device had in use at its peak; None on a real GPU."""
    try:
        peak = ctypes.CDLL(None).spillway_emulator_peak
    except AttributeError:
        return None
    peak.restype, peak.argtypes = ctypes.c_uint64, [ctypes.c_int]
    return int(peak(0))


def gradient_hash(model: nn.Module) -> str:
    """One hash over every gradient's bytes, in the order of the parameters."""
    digest = hashlib.sha256()
    for parameter in model.parameters():
        gradient = parameter.grad
        digest.update(b"none" if gradient is None else gradient.cpu().numpy().tobytes())
    return digest.hexdigest()


class MemoryOverStep:
    """Allocated and reserved device bytes at the module boundaries of one step, forward and backward.

    The hooks are in place in every step and every variant; they note something only while `on`.
    """

    def __init__(self, model: nn.Module, offloaded: Callable[[], int]) -> None:
        """`offloaded`: bytes that are offloaded now."""
        self.offloaded = offloaded
        self.on = False
        self.samples: list[dict[str, Any]] = []
        for name, module in model.named_modules():
            if name and not isinstance(module, nn.ModuleList):
                module.register_forward_hook(self._forward_hook(name))

    def note(self, phase: str, where: str) -> None:
        if self.on:
            self.samples.append(
                {
                    "phase": phase,
                    "where": where,
                    "allocated_bytes": torch.cuda.memory_allocated(),
                    "reserved_bytes": torch.cuda.memory_reserved(),
                    "offloaded_bytes": self.offloaded(),
                }
            )

    def _forward_hook(self, name: str) -> Callable[[nn.Module, Any, Any], None]:
        def backward(_: Tensor) -> None:
            self.note("backward", name)

        def forward(_module: nn.Module, _inputs: Any, output: Any) -> None:
            self.note("forward", name)
            if isinstance(output, Tensor) and output.requires_grad:
                output.register_hook(backward)

        return forward
