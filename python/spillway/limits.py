# SPDX-License-Identifier: Apache-2.0
"""How much GPU memory Spillway may hold."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

from spillway._arguments import flag
from spillway._load import glue
from spillway._summary import device_index

__all__ = ["limit", "set_limit", "size_of"]

_UNITS = {"": 0, "B": 0, "KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40}


def size_of(name: str, value: Any, least: int = 1) -> int:
    """Bytes, given as an integer or as text such as "20GiB". Errors: TypeError, ValueError."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise TypeError(f'{name} must be bytes as an integer, or text such as "20GiB", not {value!r}')
    if isinstance(value, str):
        found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(B|KiB|MiB|GiB|TiB|)", value)
        if found is None:
            raise ValueError(f'{name} must be a size such as "512MiB" or "1.5GiB", not {value!r}')
        value = int(Decimal(found[1]) * 2 ** _UNITS[found[2]])
    if not least <= value < 2**63:
        allowed = "above 0" if least == 1 else f"at least {least}"
        raise ValueError(f"{name} must be {allowed} and at most what the device has, not {value} bytes")
    return int(value)


def _require_ours() -> None:
    if not glue().stats()["ours"]:
        raise RuntimeError(
            "only Spillway's memory can be limited here: call spillway.use_allocator() before anything "
            "touches the GPU; for PyTorch's own there is torch.cuda.set_per_process_memory_fraction"
        )


def set_limit(limit: int | str | None, device: Any = None, *, soft: bool = False) -> None:
    """Cap what Spillway's heap holds on one GPU, in bytes; None removes the cap.

    Beyond the cap memory is out as where the GPU has none: cached memory goes back, tags of
    :func:`allow_eviction` are paused, and only then ``torch.OutOfMemoryError`` says who holds what.
    ``torch.cuda.set_per_process_memory_fraction`` is a cap of its own; the smaller of the two counts.

    Args:
        limit: bytes, or text such as ``"20GiB"``. Below what is held now, cached memory goes back at once;
            what lives stays.
        device: which GPU; default: the current one.
        soft: not a cap: beyond it cached memory goes back before the heap grows, and then it grows.

    Raises:
        TypeError: `limit` is neither an integer, text nor None, or `soft` no bool.
        ValueError: `limit` is no size, or not above 0 and at most what the GPU has; there is no such GPU.
        RuntimeError: CUDA memory is not Spillway's. In each case nothing has changed.
    """
    flag("soft", soft)
    size = 0 if limit is None else size_of("limit", limit)
    _require_ours()
    glue().set_memory_limit(device_index(device), size, soft)


def limit(device: Any = None, *, soft: bool = False) -> int | None:
    """What :func:`set_limit`, ``use_allocator(limit=…)`` or ``SPILLWAY_MEMORY_LIMIT`` has set for one
    GPU, in bytes; None for no limit."""
    _require_ours()
    return glue().memory_limit(device_index(device), soft) or None
