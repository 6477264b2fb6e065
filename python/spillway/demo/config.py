# SPDX-License-Identifier: Apache-2.0
"""What one variant does."""

from __future__ import annotations

from dataclasses import dataclass

STEADY = 3  # the first step (from 1) in which, plans made, nothing may be allocated any more
SIZE_NAMES = ("demo", "small")


@dataclass(frozen=True)
class VariantConfig:
    ratio: float | None  # None: plain PyTorch, without Spillway
    allocator: str  # whose the variants with Spillway use: spillway or torch
    device: str  # cuda or emulated
    steps: int
    seed: int
    size: str
    data: str | None  # a file; None: Python's standard library
