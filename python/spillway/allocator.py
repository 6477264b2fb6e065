# SPDX-License-Identifier: Apache-2.0
"""Spillway's memory as PyTorch's CUDA memory."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from spillway._load import glue
from spillway.cpu_offload import end_steps_with_optimizers
from spillway.launch import LIBRARIES, LaunchError
from spillway.limits import size_of

if TYPE_CHECKING:
    from torch.cuda.memory import CUDAPluggableAllocator

__all__ = ["library_path", "pluggable_allocator", "use_allocator"]


def use_allocator(limit: int | str | None = None) -> None:
    """Let Spillway's heap serve all CUDA memory of this process.

    Call it before anything touches the GPU. ``torch.cuda.memory_allocated()`` and its relatives,
    ``empty_cache()``, out-of-memory errors, CUDA graphs, ``torch.cuda.MemPool`` and the memory viewer's
    snapshots and history go on working; "reserved" memory is what is held from the driver. CUDA tensors whose
    block has more than 128 KiB can be sent to other processes. What is not supported (sending smaller ones,
    switching caching off) raises an error that names it. Calling it again changes no more than the limit.

    Args:
        limit: the most that is held on each GPU, in bytes or as text such as ``"20GiB"``, as
            :func:`spillway.memory.set_limit` sets it for one; default: what ``SPILLWAY_MEMORY_LIMIT`` says.

    With ``SPILLWAY_PLAN_REPLAY=1``, a training step that makes the same requests again gets the same
    addresses again, placed together (docs/allocator.md). Steps end at optimizers and by ``spillway.step()``.

    Raises:
        RuntimeError: CUDA has already started with another allocator. Nothing is changed.
        TypeError: `limit` is neither an integer nor text.
        ValueError: `limit` is no size above 0, or a ``SPILLWAY_*`` variable has a value that cannot be used.
            A limit above what a GPU has is an error where that GPU is first used.
    """
    size = None if limit is None else size_of("limit", limit)
    glue().use_allocator()
    if os.environ.get("SPILLWAY_PLAN_REPLAY") == "1":
        end_steps_with_optimizers()
    if size is not None:
        glue().limit_memory(size)


def library_path() -> str:
    """The path of ``libspillway.so``, for ``torch.cuda.memory.CUDAPluggableAllocator(path, "spillway_malloc",
    "spillway_free")`` and for programs that use the C interface.

    Raises LaunchError where this build has none.
    """
    path = LIBRARIES / "libspillway.so"
    if not path.exists():
        raise LaunchError(f"{path}: is missing. Build it with scripts/build, or reinstall the package.")
    return str(path)


def pluggable_allocator() -> CUDAPluggableAllocator:
    """Spillway's heap behind PyTorch's pluggable allocator, with all functions that PyTorch can use::

        torch.cuda.memory.change_current_allocator(spillway.memory.pluggable_allocator())
        pool = torch.cuda.MemPool(spillway.memory.pluggable_allocator().allocator())  # under PyTorch's own

    ``use_allocator()`` serves the same memory and is to be preferred: PyTorch refuses statistics, snapshots,
    graphs and more for every pluggable allocator (docs/entry_points.md has the list). Without these functions
    ``record_stream`` would do nothing and memory of a graph would be given to others.
    """
    from torch.cuda.memory import CUDAPluggableAllocator

    made = CUDAPluggableAllocator(library_path(), "spillway_malloc", "spillway_free")
    glue().install_pluggable_hooks(made.allocator())
    return made
