# SPDX-License-Identifier: Apache-2.0
"""Spillway's heap as PyTorch's CUDA allocator."""

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
    """Make Spillway's heap the CUDA allocator of this process.

    Call it before CUDA is initialized. ``torch.cuda.memory_allocated()`` and its relatives,
    ``empty_cache()``, out-of-memory errors, CUDA graphs, ``torch.cuda.MemPool`` and the memory viewer's
    snapshots and history continue to work. CUDA tensors whose block has more than 128 KiB can be sent to
    other processes. Unsupported operations (sending smaller tensors, disabling caching) raise an error. A
    second call changes only the limit.

    Args:
        limit: maximum memory to reserve on each GPU, in bytes or as text such as ``"20GiB"``;
            :func:`spillway.memory.set_limit` sets it for one GPU. Default: ``SPILLWAY_MEMORY_LIMIT``.

    With ``SPILLWAY_PLAN_REPLAY=1``, training steps that repeat the same requests get planned addresses, the
    same in each step (docs/allocator.md). A step ends with an optimizer step or ``spillway.step()``.

    Raises:
        RuntimeError: CUDA has already started with another allocator. Nothing has changed.
        TypeError: `limit` is neither an integer nor text.
        ValueError: `limit` is not a size above 0, or a ``SPILLWAY_*`` variable has an invalid value. A limit
            above a GPU's memory raises when that GPU is first used.
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

    Raises LaunchError if this build has no such library.
    """
    path = LIBRARIES / "libspillway.so"
    if not path.exists():
        raise LaunchError(f"{path}: is missing. Build it with scripts/build, or reinstall the package.")
    return str(path)


def pluggable_allocator() -> CUDAPluggableAllocator:
    """Spillway's heap as a pluggable allocator of PyTorch, with all functions that PyTorch can use::

        torch.cuda.memory.change_current_allocator(spillway.memory.pluggable_allocator())
        pool = torch.cuda.MemPool(spillway.memory.pluggable_allocator().allocator())  # under PyTorch's own

    Prefer ``use_allocator()``, which serves the same memory: PyTorch supports no statistics, snapshots or
    graphs with a pluggable allocator (docs/entry_points.md has the list). Prefer this function to
    ``CUDAPluggableAllocator(library_path(), …)``, with which ``record_stream`` would have no effect and
    memory of a graph would be reused outside of it.
    """
    from torch.cuda.memory import CUDAPluggableAllocator

    made = CUDAPluggableAllocator(library_path(), "spillway_malloc", "spillway_free")
    glue().install_pluggable_hooks(made.allocator())
    return made
