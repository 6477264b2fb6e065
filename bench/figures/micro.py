# SPDX-License-Identifier: Apache-2.0
"""Figures of the allocators on their hit path, each against a reference in the same run."""

from __future__ import annotations

from bench.figures.registry import Session, figure


@figure(
    "tensor_hit_over_torch",
    "time of torch.empty and its free, Spillway / PyTorch's allocator",
    "<= 1.3",
    "emulated",
)
def tensor_hit(session: Session) -> float:
    """Allocating a tensor of a cached size costs about what it costs with PyTorch's own allocator."""
    spillway, torch = (session.probe("tensors", name)["ns"] for name in ("spillway", "torch"))
    return spillway / torch


@figure("arena_hit_over_malloc", "time of a slot taken and released, 256 KiB, arena / malloc", "<= 8", "cpu")
def arena_hit(session: Session) -> float:
    """A pinned slot of a cached size costs no more than a few mallocs: nothing beside its copy."""
    times = session.benchmark("transfer_bench")
    return times["BM_TakeSlot/emulated/262144"] / times["BM_TakeSlot/malloc/262144"]
