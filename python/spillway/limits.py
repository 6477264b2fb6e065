# SPDX-License-Identifier: Apache-2.0
"""How much GPU memory Spillway may reserve."""

from __future__ import annotations

from typing import Any

from spillway._arguments import flag
from spillway._load import glue
from spillway._summary import device_index
from spillway.settings import size_in_bytes

__all__ = ["limit", "set_limit", "size_of"]


def size_of(name: str, value: Any, least: int = 1) -> int:
    """Bytes, given as an integer or as text such as "20GiB". Errors: TypeError, ValueError."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise TypeError(f'{name} must be an integer number of bytes, or text such as "20GiB", not {value!r}')
    if isinstance(value, str):
        size = size_in_bytes(value)
        if size is None:
            raise ValueError(f'{name} must be a size such as "512MiB" or "1.5GiB", not {value!r}')
        value = size
    if not least <= value < 2**63:
        allowed = "above 0" if least == 1 else f"at least {least}"
        raise ValueError(f"{name} must be {allowed} and at most the device's memory, not {value} bytes")
    return int(value)


def _require_ours() -> None:
    if not glue().stats()["uses_spillway"]:
        raise RuntimeError(
            "only memory of Spillway's allocator can be limited. Call spillway.use_allocator() before CUDA "
            "is initialized, or limit PyTorch's allocator with torch.cuda.set_per_process_memory_fraction."
        )


def set_limit(limit: int | str | None, device: Any = None, *, soft: bool = False) -> None:
    """Cap the memory that Spillway's heap reserves on one GPU; None removes the cap.

    At the cap an allocation proceeds as if the GPU were full: the heap releases cached memory, then pauses
    tags of :func:`allow_eviction`, and only then raises ``torch.OutOfMemoryError`` with the memory of each
    tag. ``torch.cuda.set_per_process_memory_fraction`` is a separate cap; the smaller of the two applies.

    Args:
        limit: bytes, or text such as ``"20GiB"``. If more is reserved now, cached memory is released
            immediately; allocated memory is not affected.
        device: which GPU; default: the current one.
        soft: a threshold instead of a cap: beyond it the heap releases cached memory before it grows.

    Raises:
        TypeError: `limit` is not an integer, text or None, or `soft` is not a bool.
        ValueError: `limit` is not a size above 0 and at most the GPU's memory, or `device` does not exist.
        RuntimeError: Spillway's allocator is not in use. On any error nothing has changed.
    """
    flag("soft", soft)
    size = 0 if limit is None else size_of("limit", limit)
    _require_ours()
    glue().set_memory_limit(device_index(device), size, soft)


def limit(device: Any = None, *, soft: bool = False) -> int | None:
    """The limit of one GPU in bytes, set by :func:`set_limit`, ``use_allocator(limit=…)`` or
    ``SPILLWAY_MEMORY_LIMIT``; None for no limit."""
    _require_ours()
    return glue().memory_limit(device_index(device), soft) or None
