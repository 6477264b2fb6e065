# SPDX-License-Identifier: Apache-2.0
"""The memory of a GPU by tag."""

from __future__ import annotations

from typing import Any

from spillway._load import glue
from spillway.report.sizes import size
from spillway.statistics import Stats

__all__ = ["by_tag", "device_index", "summary"]


def device_index(device: Any) -> int:
    """The number of a GPU as torch names them, the current one for None. Errors: ValueError."""
    import torch

    if device is None and not torch.cuda.is_initialized():
        device = (
            0  # the current one then; to ask would start CUDA, and the allocator could not be chosen any more
        )
    index = torch.cuda._utils._get_device_index(device, optional=True)
    count = torch.cuda.device_count()
    if not 0 <= index < count:
        raise ValueError(f"device must be one of the {count} GPUs, not {device!r}")
    return index


def by_tag(device: Any = None) -> dict[str, Any]:
    """The memory of one GPU by tag, as numbers. Sizes are bytes.

    ``allocator`` (str)
        the allocator in use: "spillway" after ``use_allocator()``, and with a pluggable allocator of
        ``libspillway.so`` (a plain ``CUDAPluggableAllocator``: after its first allocation). With another
        allocator ``tags`` is empty, and ``total`` has what that one reports; unknown values are None.
    ``tags``
        by tag ("" for none): ``allocated`` (on the device, rounded), ``paused`` (memory released by
        ``pause``, addresses kept), ``waste`` (rounding), ``peak`` and ``blocks``.
    ``cached``
        free reserved bytes, by pool and stream: a list of ``pool``, ``stream``,
        ``bytes``. Free memory has no tag: the next allocation may get it.
    ``total``
        ``allocated``, ``cached``, ``paused`` (memory released by ``pause``), ``offloaded`` (storages on
        the host, without paused memory), ``reserved`` (from the driver), ``peak``, ``reserved_peak``,
        and the three wastes ``rounding``, ``stranded`` (free, in chunks with allocated blocks) and
        ``pending`` (free, but a copy or another stream may still use it).

    Args:
        device: which GPU; default: the current one.

    Raises:
        ValueError: there is no such GPU.
    """
    index = device_index(device)
    stats = glue().stats()
    if not stats["uses_spillway"]:
        return _of_another(index, stats)
    tags = {
        name: {
            "allocated": accounting["allocated_bytes"] - accounting["evicted_bytes"],
            "paused": accounting["evicted_bytes"],
            "waste": accounting["allocated_bytes"] - accounting["requested_bytes"],
            "peak": accounting["allocated_peak_bytes"],
            "blocks": accounting["blocks"],
        }
        for name, accounting in sorted(glue().memory_by_tag(index).items())
    }
    cached = [
        {"pool": pool, "stream": stream, "bytes": free} for pool, stream, free in glue().cached_memory(index)
    ]
    on_device = stats["devices"].get(index)
    total = dict.fromkeys(_TOTALS, 0)
    if on_device is not None:
        heap = on_device["heap"]
        total = {
            "allocated": heap["allocated_bytes"] - heap["evicted_bytes"],
            "cached": heap["cached_bytes"],
            "paused": heap["evicted_bytes"],
            # Offloaded bytes include paused memory whose contents are kept.
            "offloaded": on_device["residency"]["offloaded_bytes"] - on_device["pauses"]["on_host_bytes"],
            "reserved": heap["reserved_bytes"],
            "peak": heap["allocated_peak_bytes"],
            "reserved_peak": heap["reserved_peak_bytes"],
            "rounding": heap["rounding_bytes"],
            "stranded": heap["stranded_bytes"],
            "pending": heap["pending_bytes"],
        }
    return {"device": index, "allocator": "spillway", "tags": tags, "cached": cached, "total": total}


_TOTALS = (
    "allocated",
    "cached",
    "paused",
    "offloaded",
    "reserved",
    "peak",
    "reserved_peak",
    "rounding",
    "stranded",
    "pending",
)


def _of_another(index: int, stats: Stats) -> dict[str, Any]:
    import torch

    known = torch.cuda.memory_stats(index) if stats["allocator"] in ("native", "cudaMallocAsync") else {}
    on_device = stats["devices"].get(index)
    total: dict[str, Any] = dict.fromkeys(_TOTALS)
    total["paused"] = 0  # only Spillway's allocator can pause memory
    total["offloaded"] = on_device["residency"]["offloaded_bytes"] if on_device else 0
    if known:
        total["allocated"] = known["allocated_bytes.all.current"]
        total["peak"] = known["allocated_bytes.all.peak"]
        total["reserved"] = known["reserved_bytes.all.current"]
        total["reserved_peak"] = known["reserved_bytes.all.peak"]
        total["cached"] = total["reserved"] - total["allocated"]
    if known.get("requested_bytes.all.current"):
        total["rounding"] = total["allocated"] - known["requested_bytes.all.current"]
    return {"device": index, "allocator": stats["allocator"], "tags": {}, "cached": [], "total": total}


def _size(count: int | None) -> str:
    return "unknown" if count is None else size(count)


def summary(device: Any = None) -> str:
    """``by_tag`` as a table to print: a line per tag, largest first, then what is cached, and totals.

    ``torch.cuda.memory_summary()`` stays PyTorch's.
    """
    accounting = by_tag(device)
    total = accounting["total"]
    emulated = " (emulated)" if glue().stats()["emulated"] else ""
    lines = [f"GPU {accounting['device']}{emulated}, memory of the allocator '{accounting['allocator']}'"]
    header = ("tag", "allocated", "cached", "paused", "waste", "peak")
    rows: list[tuple[str, ...]] = []
    for name, tag in sorted(accounting["tags"].items(), key=lambda item: (-item[1]["peak"], item[0])):
        sizes = (tag["allocated"], None, tag["paused"], tag["waste"], tag["peak"])
        rows.append((name or "(untagged)", *("" if size is None else _size(size) for size in sizes)))
    for free in accounting["cached"]:
        if free["bytes"]:
            where = f"stream {free['stream']:#x}" + (f", pool {free['pool']}" if free["pool"] else "")
            rows.append((f"(free) {where}", "", _size(free["bytes"]), "", "", ""))
    wastes = [total[waste] for waste in ("rounding", "stranded", "pending")]
    waste = None if None in wastes else sum(wastes)
    sizes = (total["allocated"], total["cached"], total["paused"], waste, total["peak"])
    rows.append(("total", *(_size(size) for size in sizes)))
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    for row in [header, *rows]:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    lines.append(f"offloaded storages: {_size(total['offloaded'])}")
    lines.append(f"reserved: {_size(total['reserved'])}, {_size(total['reserved_peak'])} at the peak")
    lines.append(
        "waste: "
        + ", ".join(f"{_size(total[waste])} {waste}" for waste in ("rounding", "stranded", "pending"))
    )
    if accounting["allocator"] != "spillway":
        lines.append("by tag: unknown; only Spillway's allocator knows (spillway.use_allocator())")
    return "\n".join(lines)
