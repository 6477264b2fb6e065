# SPDX-License-Identifier: Apache-2.0
"""Reads the logs that the processes of a job have written (docs/reports.md). Imports no torch."""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from spillway._files import read_bytes, reason_of
from spillway._text import parse_json, printable

__all__ = [
    "FORMAT",
    "Operator",
    "ReportError",
    "RunLog",
    "Span",
    "TagStep",
    "one_line_if_damaged",
    "read_log",
]

FORMAT = 2
SUFFIX = ".spillway"
AGAIN = "Run the job again with --report."
_NO_YEAR = 250_000_000_000  # seconds since 1970, close to the year 9999
_MOST_BYTES = 4 << 30  # a job writes 64 MiB, and then a line a step


class ReportError(ValueError):
    """A report cannot be made. The message is one line for the user."""


@contextlib.contextmanager
def one_line_if_damaged(path: Path) -> Iterator[None]:
    """Raises ReportError in place of errors from values that contradict each other or that no job writes."""
    try:
        yield
    except ReportError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        reason = printable(repr(error))[:200]
        raise ReportError(
            f"{path}: is damaged; its lines contradict each other ({reason}). {AGAIN}"
        ) from error


class Span(NamedTuple):
    """A stretch of a stream's time: "out" and "in" are copies, "wait" a stream that waited, "mark" a point.
    Times are nanoseconds: `submitted` of the host, since the log began, the others of the device."""

    kind: str
    submitted: int
    begin: int
    end: int
    device: int
    stream: int
    amount: int  # bytes of a copy; of a wait: the stream that was waited for
    tag: str
    storage: int


class Operator(NamedTuple):
    """A call of an operator, of a node of a backward pass, or of a kernel: `begin` and `end` of its work,
    nanoseconds of the device's."""

    name: str
    begin: int
    end: int
    device: int
    stream: int
    tag: str


class TagStep(NamedTuple):
    """One tag's share of one step; sizes are bytes."""

    time: int
    tag: str
    offloadable: int
    offloaded: int
    copied: int
    fetched: int
    skipped: dict[str, dict[str, int]]  # by reason: storages, bytes


@dataclass
class RunLog:
    """One process's log. `events` are what happened to memory, in order, as tuples whose first is the kind:
    new, free, retag, offload, fetch, end, from and step; tags are names."""

    path: Path
    about: dict[str, Any]
    events: list[tuple[Any, ...]] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    operators: list[Operator] = field(default_factory=list)  # empty unless they were asked for
    kernels: list[Operator] = field(default_factory=list)  # the same
    tag_steps: list[TagStep] = field(default_factory=list)
    steps: list[tuple[int, dict[str, Any]]] = field(default_factory=list)  # time, statistics
    last: dict[str, Any] | None = None  # the latest statistics
    complete: bool = False  # its process has ended in the ordinary way
    detailed_until: int | None = None  # from here on only steps were written
    ended: int = 0  # the time of what was written last
    earlier_runs: list[list[RunLog]] = field(default_factory=list)  # whose logs are in the same folder
    shares_name: bool = False  # as a rank that was started again

    @property
    def name(self) -> str:
        rank, process = self.about.get("rank"), f"process {self.about['process']}"
        if rank is None:
            return process
        return f"rank {rank}, {process}" if self.shares_name else f"rank {rank}"

    @property
    def started(self) -> float:
        """Seconds since the epoch."""
        return float(self.about["started"])

    @property
    def stopped(self) -> float:
        """When something was written last; the same."""
        return self.started + self.ended / 1e9

    @property
    def command(self) -> str:
        return shlex.join(str(word) for word in self.about["command"])

    @property
    def emulated(self) -> bool:
        return bool(self.about.get("emulated"))


def read_log(path: Path) -> RunLog:
    """Raises ReportError. Ignores an incomplete last line, and the NUL bytes that a file system leaves where
    it lost data."""
    try:
        text = read_bytes(path, _MOST_BYTES).decode("utf-8", "replace")
    except OSError as error:
        raise ReportError(f"{path}: cannot be read ({reason_of(error)}). Name a readable folder.") from None
    lines = text.rstrip("\0\n").split("\n")
    log = RunLog(path, _about(path, lines))
    reader = _Reader(log)
    for number, line in enumerate(lines[1:], 2):
        try:
            reader.take(parse_json(line))
        except json.JSONDecodeError:
            if number < len(lines):  # the last one is cut
                raise ReportError(f"{path}: is damaged at line {number}. {AGAIN}") from None
        except (ValueError, TypeError, KeyError, IndexError, AttributeError):
            raise ReportError(f"{path}: is damaged at line {number}. {AGAIN}") from None
    return log


def _about(path: Path, lines: list[str]) -> dict[str, Any]:
    try:
        about = parse_json(lines[0])
        version = about["spillway_run_log"]
        process, written_by, started = about["process"], about["spillway"], about["started"]
    except (ValueError, TypeError, KeyError, IndexError):
        raise _not_a_log(path) from None
    if version != FORMAT:
        raise ReportError(
            f"{path}: has format {version} of Spillway {written_by}, but this Spillway reads format "
            f"{FORMAT}. Use the version of Spillway that wrote it."
        )
    if not (isinstance(process, int) and isinstance(written_by, str) and isinstance(started, int | float)):
        raise _not_a_log(path)
    if not 0 <= started < _NO_YEAR:
        raise ReportError(f"{path}: is damaged (started {started} seconds after 1970). {AGAIN}")
    return dict(about)


def _not_a_log(path: Path) -> ReportError:
    return ReportError(f"{path}: is not a run log. Remove it from the folder.")


# What the elements of a line are, by its kind.
_LAYOUTS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("out", "in", "wait", "mark", "op", "launch"), (str, *[int] * 8)),
    **dict.fromkeys(("tag", "name"), (str, int, str)),
    "new": (str, *[int] * 5),
    **dict.fromkeys(("free", "end"), (str, int, int)),
    **dict.fromkeys(("retag", "fetch"), (str, int, int, int)),
    "offload": (str, *[int] * 7),
    "from": (str, int, str, str),
    "tagstep": (str, int, int, int, dict),
    **dict.fromkeys(("step", "last"), (str, int, int, dict)),
    **dict.fromkeys(("full", "done"), (str, int)),
}


class _Reader:
    def __init__(self, log: RunLog) -> None:
        self.log = log
        self.tags = {0: ""}
        self.names: dict[int, str] = {}  # of operators and kernels

    def take(self, line: list[Any]) -> None:
        kind = line[0]
        if tuple(map(type, line)) != _LAYOUTS[kind]:
            raise ValueError(f"{kind}: unexpected elements")
        log = self.log
        if kind in ("out", "in", "wait", "mark"):
            _, submitted, begin, end, device, stream, amount, tag, storage = line
            span = Span(kind, submitted, begin, end, device, stream, amount, self.tags[tag], storage)
            log.spans.append(span)
            return
        if kind in ("op", "launch"):
            _, _submitted, begin, end, device, stream, number, tag, _storage = line
            call = Operator(self.names[number], begin, end, device, stream, self.tags[tag])
            (log.operators if kind == "op" else log.kernels).append(call)
            return
        if kind in ("tag", "name"):
            (self.tags if kind == "tag" else self.names)[line[1]] = line[2]
            return
        if kind == "new":
            _, time, block, size, tag, device = line
            log.events.append((kind, time, block, size, self.tags[tag], device))
        elif kind in ("free", "end"):
            _, time, number = line
            log.events.append((kind, time, number))
        elif kind == "retag":
            _, time, block, tag = line
            log.events.append((kind, time, block, self.tags[tag]))
        elif kind == "offload":
            _, time, storage, block, size, copied, region, memory = line
            event = (kind, time, storage, block, size, copied, self.tags[region], self.tags[memory])
            log.events.append(event)
        elif kind == "fetch":
            _, time, storage, block = line
            log.events.append((kind, time, storage, block))
        elif kind == "from":
            _, storage, made_by, where = line
            log.events.append((kind, log.ended, storage, made_by, where))
            return
        elif kind == "tagstep":
            _, time, _number, tag, amounts = line
            log.tag_steps.append(TagStep(time, self.tags[tag], **amounts))
        elif kind in ("step", "last"):
            _, time, _number, statistics = line
            if kind == "step":
                log.steps.append((time, statistics))
                log.events.append((kind, time))
            log.last = statistics
        elif kind == "full":
            log.detailed_until = line[1]
        elif kind == "done":
            log.complete = True
        else:
            raise ValueError(kind)
        log.ended = max(log.ended, line[1])
