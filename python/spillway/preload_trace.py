# SPDX-License-Identifier: Apache-2.0
"""Traces of CUDA calls, written by the preload library (docs/preload_trace.md)."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from statistics import median_low
from typing import Any

from spillway._files import read_bytes, read_start, reason_of
from spillway._text import printable

__all__ = ["Call", "PreloadTrace", "is_preload_trace", "read_preload_trace", "summary"]

_MAGIC = b"SPILLPRE"
_VERSIONS = (1, 2)  # of the first each call has a moment of its own
_HEAD = struct.Struct("<8sIIQQiI")
_SECTION = struct.Struct("<II")
_EVENTS = struct.Struct("<iIQQ")
_END = struct.Struct("<QQQ")
_EVENT = struct.Struct("<QQQQHHi")
_EVENTS_KIND, _END_KIND = 1, 2
_NOT_READY = 600
_MOST_BYTES = 16 << 30
_AGAIN = "Record the run again with SPILLWAY_PRELOAD_TRACE=FILE."


@dataclass(frozen=True)
class Call:
    """One call. ``nanoseconds`` since the trace began; ``result`` is CUDA's number, 0 for success."""

    nanoseconds: int
    thread: int
    function: str
    kind: str
    address: int
    bytes: int
    stream: int
    result: int


@dataclass(frozen=True)
class PreloadTrace:
    """A trace that was read from a file. ``calls`` are in the order of time; ``complete`` is true if the
    program ended its recording, ``lost`` how many calls found no memory."""

    process: int
    calls: list[Call]
    complete: bool
    lost: int


def is_preload_trace(path: str | os.PathLike[str]) -> bool:
    """Whether a file begins like a trace of the preload library. Raises ValueError if it cannot be read."""
    return _read(path, len(_MAGIC)) == _MAGIC


def read_preload_trace(path: str | os.PathLike[str]) -> PreloadTrace:
    """Reads a trace from a file. A trace of a program that ended early is read up to its last complete call.

    Raises ValueError for a file that is not such a trace or is damaged."""
    return _Reader(os.fspath(path), _read(path)).trace()


def _read(path: str | os.PathLike[str], first: int | None = None) -> bytes:
    try:
        return read_bytes(path, _MOST_BYTES) if first is None else read_start(path, first)
    except OSError as error:
        raise ValueError(
            f"{os.fspath(path)}: cannot be read ({reason_of(error)}). Name a readable file."
        ) from None


def _all_moments(ticks: list[int], begun: int, written: int) -> list[int]:
    """Of one thread's calls in their order. Those without a moment (0) follow the one before them evenly, as
    far from each other as such calls are mostly: a pause among them lies behind them."""
    known = [(-1, begun), *((at, each) for at, each in enumerate(ticks) if each), (len(ticks), written)]
    runs = [(first, start, last, end) for (first, start), (last, end) in pairwise(known) if last > first + 1]
    gaps = [(end - start) // (last - first) for first, start, last, end in runs]
    usual = median_low(gaps) if gaps else 0
    found = list(ticks)
    for (first, start, last, _), gap in zip(runs, gaps, strict=True):
        for at in range(first + 1, last):
            found[at] = start + min(gap, usual) * (at - first)
    return found


class _Reader:
    def __init__(self, path: str, data: bytes) -> None:
        self.path = path
        self.data = data
        if len(data) < _HEAD.size or not data.startswith(_MAGIC):
            raise ValueError(f"{path}: is not a trace of CUDA calls. {_AGAIN}")
        _, version, names, ticks, nanoseconds, self.process, size = _HEAD.unpack_from(data)
        if version not in _VERSIONS:
            raise ValueError(
                f"{path}: has format {version}, but this Spillway reads format {_VERSIONS[-1]}. Use the "
                "version of Spillway that wrote it."
            )
        if size != _EVENT.size:
            raise ValueError(f"{path}: is damaged (calls of {size} bytes instead of {_EVENT.size}). {_AGAIN}")
        self.at = _HEAD.size + names
        lists = data[_HEAD.size : self.at].decode(errors="replace").split("\n\n")
        if len(data) < self.at or len(lists) != 3:
            raise ValueError(f"{path}: is truncated within its header. {_AGAIN}")
        self.functions, self.kinds = ([*map(printable, each.split("\n"))] for each in lists[:2])
        self.moments = [(ticks, nanoseconds)]
        self.events: list[tuple[int, tuple[int, ...]]] = []
        self.complete = False
        self.lost = 0

    def _damaged(self, why: str) -> ValueError:
        return ValueError(f"{self.path}: is damaged at byte {self.at} ({why}). {_AGAIN}")

    def trace(self) -> PreloadTrace:
        while not self.complete and self.at + _SECTION.size <= len(self.data):
            kind, length = _SECTION.unpack_from(self.data, self.at)
            body = self.data[self.at + _SECTION.size : self.at + _SECTION.size + length]
            if kind not in (_EVENTS_KIND, _END_KIND):
                raise self._damaged(f"unknown section kind {kind}")
            more = length - (_EVENTS.size if kind == _EVENTS_KIND else _END.size)
            if more < 0 or more % _EVENT.size or (more and kind == _END_KIND):
                raise self._damaged(f"invalid section size {length}")
            if kind == _EVENTS_KIND:
                self._events(body)
            else:
                self._end(body)
            self.at += _SECTION.size + length
        if self.complete and self.at < len(self.data):
            raise self._damaged("data after the end section")
        calls = sorted(self._calls(), key=lambda call: call.nanoseconds)
        return PreloadTrace(self.process, calls, self.complete, self.lost)

    def _events(self, body: bytes) -> None:
        if len(body) < _EVENTS.size:
            return
        thread, _, ticks, nanoseconds = _EVENTS.unpack_from(body)
        self.moments.append((ticks, nanoseconds))
        whole = (len(body) - _EVENTS.size) // _EVENT.size * _EVENT.size
        events = list(_EVENT.iter_unpack(body[_EVENTS.size : _EVENTS.size + whole]))
        if any(event[4] >= len(self.functions) or event[5] >= len(self.kinds) for event in events):
            raise self._damaged("call of a function that is not in its table")
        moments = _all_moments([event[0] for event in events], self.moments[0][0], ticks)
        self.events += [(thread, (at, *event[1:])) for at, event in zip(moments, events, strict=True)]

    def _end(self, body: bytes) -> None:
        if len(body) < _END.size:
            return
        ticks, nanoseconds, self.lost = _END.unpack_from(body)
        self.moments.append((ticks, nanoseconds))
        self.complete = True

    def _calls(self) -> Iterator[Call]:
        (first_ticks, first), (last_ticks, last) = min(self.moments), max(self.moments)
        rate = (last - first) / (last_ticks - first_ticks) if last_ticks > first_ticks else 1.0
        for thread, (ticks, address, size, stream, function, kind, result) in self.events:
            yield Call(
                round((ticks - first_ticks) * rate),
                thread,
                self.functions[function],
                self.kinds[kind],
                address,
                size,
                stream,
                result,
            )


def summary(trace: PreloadTrace) -> dict[str, Any]:
    """Totals of a trace, as values for JSON. Device memory is allocated by cudaMalloc and similar functions;
    mapped memory (cuMemCreate) is counted separately."""
    functions: dict[str, dict[str, int]] = {}
    streams: dict[str, dict[str, int]] = {}
    sizes: dict[str, int] = {}
    live = _Live(("allocate",), ("free",))
    mapped = _Live(("create",), ("release",), ("retain",))
    host = _Live(("host_allocate", "host_register"), ("host_free", "host_unregister"))
    for call in trace.calls:
        accounting = functions.setdefault(call.function, {"calls": 0, "bytes": 0, "errors": 0})
        accounting["calls"] += 1
        accounting["bytes"] += call.bytes
        accounting["errors"] += call.result not in (0, _NOT_READY)
        if call.kind in ("copy", "copy_in", "copy_out", "fill", "launch", "graph_launch"):
            of_stream = streams.setdefault(f"{call.stream:#x}", {"calls": 0, "bytes": 0})
            of_stream["calls"] += 1
            of_stream["bytes"] += call.bytes
        if call.kind == "allocate" and call.result == 0:
            size = str(1 << max(call.bytes - 1, 0).bit_length())
            sizes[size] = sizes.get(size, 0) + 1
        for each in (live, mapped, host):
            each.see(call)
    return {
        "process": trace.process,
        "complete": trace.complete,
        "lost": trace.lost,
        "nanoseconds": trace.calls[-1].nanoseconds if trace.calls else 0,
        "calls": len(trace.calls),
        "threads": len({call.thread for call in trace.calls}),
        "device": live.accounting(),
        "mapped": mapped.accounting(),
        "host": host.accounting(),
        "copied_in_bytes": sum(call.bytes for call in trace.calls if call.kind == "copy_in"),
        "copied_out_bytes": sum(call.bytes for call in trace.calls if call.kind == "copy_out"),
        "launches": sum(call.kind in ("launch", "graph_launch") for call in trace.calls),
        "captures": sum(call.kind == "capture_begin" for call in trace.calls),
        "ipc": sum(call.kind.startswith("ipc_") for call in trace.calls),
        "allocations_up_to_bytes": {size: sizes[size] for size in sorted(sizes, key=int)},
        "streams": dict(sorted(streams.items())),
        "functions": dict(sorted(functions.items())),
    }


class _Live:
    """Bytes of one kind of memory over a trace."""

    def __init__(self, births: tuple[str, ...], deaths: tuple[str, ...], holds: tuple[str, ...] = ()) -> None:
        self.births, self.deaths, self.holds = births, deaths, holds
        self.bytes_of: dict[int, int] = {}
        self.more: dict[int, int] = {}  # deaths to come before the last one, by address
        self.now = self.peak = self.count = 0

    def see(self, call: Call) -> None:
        if call.result != 0:
            return
        if call.kind in self.births and call.address:
            self.now += call.bytes - self.bytes_of.get(call.address, 0)
            self.bytes_of[call.address] = call.bytes
            self.more.pop(call.address, None)
            self.count += 1
            self.peak = max(self.peak, self.now)
        elif call.kind in self.holds:
            self.more[call.address] = self.more.get(call.address, 0) + 1
        elif call.kind in self.deaths:
            if self.more.get(call.address):
                self.more[call.address] -= 1
            else:
                self.now -= self.bytes_of.pop(call.address, 0)

    def accounting(self) -> dict[str, int]:
        return {"allocations": self.count, "peak_bytes": self.peak, "at_end_bytes": self.now}
