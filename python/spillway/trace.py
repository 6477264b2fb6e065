# SPDX-License-Identifier: Apache-2.0
"""How long memory lives: recordings, and traces of them as files."""

from __future__ import annotations

import functools
import os
from contextlib import AbstractContextManager, ContextDecorator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from spillway._files import check_regular, reason_of
from spillway._load import glue
from spillway._scope import Opening, Scope
from spillway._summary import device_index
from spillway._text import printable
from spillway.cpu_offload import end_steps_with_optimizers

__all__ = ["Recording", "Trace", "read_trace", "record_trace", "summary"]


_MOST_BYTES = 16 << 30  # of a trace that is read


@dataclass
class Recording:
    """The result of a recording; filled when it ends.

    ``counts``: ``births``, ``deaths``, ``uses``, ``steps``, ``live`` (born while recording and alive at its
    end), ``dropped`` (records that made room for newer ones) and ``unwritten`` (events that the file lacks).

    ``lifetimes``: a record per storage, finished ones first: ``block`` (counts allocations), ``bytes``,
    ``tag``, ``stream``, ``pool``, and three moments, ``birth``, ``last_use`` and ``death`` (None while it
    lives), each with ``event`` (its index among all events), ``time`` (nanoseconds) and ``step``. A region of
    ``CPUOffload`` records a use when a tensor is saved for the backward pass, and when it is unpacked there.
    """

    counts: dict[str, int] = field(default_factory=dict)
    lifetimes: list[dict[str, Any]] = field(default_factory=list)


def record_trace(
    path: str | os.PathLike[str] | None = None, *, device: int | None = None, most: int = 65536
) -> AbstractContextManager[Recording]:
    """Record the lifetime of every storage that is allocated inside, on one device.

    Args:
        path: where to write a trace; None records without a file.
        device: which GPU; default: the current one.
        most: maximum number of finished records to keep; older ones are dropped and counted.

    Raises:
        TypeError: `path` is not a path, or `most` is not an integer.
        RuntimeError: Spillway's allocator is not in use (see ``use_allocator``), or a recording is active.
        ValueError: the file cannot be created; or, at the end, could not be written.
    """
    name = None if path is None else os.fsdecode(path)
    if name is not None:
        _check_writable(name)
    if isinstance(most, bool) or not isinstance(most, int):
        raise TypeError(f"most must be an integer, not {most!r}")
    if most < 0:
        raise ValueError(f"most must be at least 0, not {most}")
    if not glue().stats()["uses_spillway"]:
        raise RuntimeError(
            "only memory of Spillway's allocator can be recorded. Call spillway.use_allocator() before CUDA "
            "is initialized."
        )
    return _Recorded(device_index(device), name or "", most)


def _check_writable(path: str) -> None:
    if not path:
        raise ValueError("path must name a file to write, or be None to record without a file, not ''")
    folder = os.path.dirname(path) or "."
    if os.path.isdir(path) or not os.access(path if os.path.exists(path) else folder, os.W_OK):
        raise ValueError(f"path={path}: cannot be written. Name a file in a writable folder.")


class _Recorded(Scope, ContextDecorator):
    def __init__(self, *options: Any) -> None:
        self._options = options
        self._seen = Recording()

    def _opening(self) -> Opening:
        end_steps_with_optimizers()
        return functools.partial(glue().start_recording, *self._options), glue().stop_recording

    if TYPE_CHECKING:

        def __enter__(self) -> Recording: ...  # type: ignore[override]

    def _entered(self) -> Recording:
        return self._seen

    def _left(self, _: BaseException | None) -> None:
        self._seen.counts = glue().recording_counts()
        self._seen.lifetimes = glue().lifetime_records()


@dataclass(frozen=True)
class Trace:
    """A trace that was read from a file. ``events`` are tuples of kind, time in nanoseconds, block, bytes,
    tag (an index in ``tags``), stream and pool; what a kind does not have is 0. Kinds are "allocate",
    "free", "use", "retag" and "step"."""

    device: int
    granularity: int
    tags: list[str]
    events: list[tuple[str, int, int, int, int, int, int]]
    complete: bool
    dropped: int


def read_trace(path: str | os.PathLike[str]) -> Trace:
    """Read a trace from a file. A trace of a program that ended early is read up to its end.

    Raises ValueError for a file that is not a trace or is damaged."""
    name = printable(os.fsdecode(path))
    try:
        check_regular(path, _MOST_BYTES)
        return Trace(**glue().read_trace(os.fsencode(path)))
    except OSError as error:
        raise ValueError(f"{name}: cannot be read ({reason_of(error)}). Name a readable file.") from None
    except UnicodeDecodeError:
        raise ValueError(f"{name}: is damaged (a tag is not UTF-8). Record the run again.") from None


def summary(trace: Trace) -> dict[str, Any]:
    """A summary of a trace, as values for JSON."""
    bytes_of: dict[int, int] = {}
    tag_of: dict[int, int] = {}
    live = peak = 0
    per_tag: dict[str, dict[str, int]] = {}
    live_of: dict[str, int] = {}

    def change(name: str, by: int) -> None:
        live_of[name] = live_of.get(name, 0) + by
        accounting = per_tag.setdefault(
            name, {"allocations": 0, "allocated_bytes": 0, "allocated_peak_bytes": 0}
        )
        accounting["allocated_peak_bytes"] = max(accounting["allocated_peak_bytes"], live_of[name])

    counts = dict.fromkeys(("allocate", "free", "use", "retag", "step"), 0)
    for kind, _, block, size, tag, _, _ in trace.events:
        counts[kind] += 1
        if kind == "allocate":
            name = trace.tags[tag]
            bytes_of[block], tag_of[block] = size, tag
            change(name, size)
            per_tag[name]["allocations"] += 1
            per_tag[name]["allocated_bytes"] += size
            live += size
            peak = max(peak, live)
        elif kind == "free":
            size = bytes_of.pop(block)
            change(trace.tags[tag_of.pop(block)], -size)
            live -= size
        elif kind == "retag":
            change(trace.tags[tag_of[block]], -bytes_of[block])
            tag_of[block] = tag
            change(trace.tags[tag], bytes_of[block])
    allocations = [event for event in trace.events if event[0] == "allocate"]
    return {
        "device": trace.device,
        "granularity": trace.granularity,
        "complete": trace.complete,
        "dropped": trace.dropped,
        "nanoseconds": trace.events[-1][1] if trace.events else 0,
        "steps": counts["step"],
        "allocations": counts["allocate"],
        "frees": counts["free"],
        "uses": counts["use"],
        "streams": len({event[5] for event in allocations}),
        "pools": len({event[6] for event in allocations}),
        "allocated_peak_bytes": peak,
        "live_at_end_bytes": live,
        "tags": dict(sorted(per_tag.items())),
    }
