# SPDX-License-Identifier: Apache-2.0
"""Spillway's memory as PyTorch's CUDA memory."""

from __future__ import annotations

from spillway._load import glue

__all__ = ["use_allocator"]


def use_allocator() -> None:
    """Let Spillway's heap serve all CUDA memory of this process.

    Call it before anything touches the GPU. ``torch.cuda.memory_allocated()`` and its relatives,
    ``empty_cache()``, out-of-memory errors, CUDA graphs, ``torch.cuda.MemPool`` and the memory viewer's
    snapshots and history go on working; "reserved" memory is what is held from the driver. What is not
    supported (sharing between processes, switching caching off) raises an error that names it. Calling it
    again changes nothing.

    Raises:
        RuntimeError: CUDA has already started with another allocator. Nothing is changed.
        ValueError: a ``SPILLWAY_*`` variable has a value that cannot be used.
    """
    glue().use_allocator()
