# SPDX-License-Identifier: Apache-2.0
"""Copies, the stalls they caused, and the largest offloaded storages."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from dataclasses import dataclass, field

from spillway.report.clock import copy_streams
from spillway.report.log import RunLog, Span

__all__ = ["Copies", "Site", "TagCosts", "copies_of", "sites_of"]


@dataclass
class TagCosts:
    """The cost of one region's tag. Sizes are bytes, times nanoseconds of the device."""

    out_bytes: int = 0
    in_bytes: int = 0
    out_time: int = 0
    in_time: int = 0
    stalls: int = 0
    stalled: int = 0


@dataclass
class Copies:
    all: TagCosts = field(default_factory=TagCosts)
    tags: dict[str, TagCosts] = field(default_factory=dict)
    copies: list[Span] = field(default_factory=list)
    stalls: list[tuple[Span, str]] = field(default_factory=list)  # of computing streams, and why
    stalled_for: dict[str, int] = field(default_factory=dict)  # nanoseconds by why
    copy_time: int = 0
    hidden_time: int = 0  # of it: nothing on the same device waited for a copy meanwhile

    @property
    def spans(self) -> list[tuple[Span, str]]:
        """Copies, and stalls with why."""
        return [*((span, "") for span in self.copies), *self.stalls]

    @property
    def hidden_share(self) -> float | None:
        """Of the time that copies took, the part in which no computing stream of their device waited for a
        copy; None without any."""
        return self.hidden_time / self.copy_time if self.copy_time else None


@dataclass
class Site:
    """Storages of one size that one region offloaded from one location in the program."""

    region: str
    memory: str
    bytes: int
    times: int = 0
    made_by: list[str] = field(default_factory=list)  # operators; empty where none is known
    lines: list[str] = field(default_factory=list)
    costs: TagCosts = field(default_factory=TagCosts)

    @property
    def total(self) -> int:
        return self.bytes * self.times


BACK, REUSE, OTHER = "a fetch", "memory that a copy still read", "another stream"


def copies_of(log: RunLog) -> Copies:
    found = Copies(copies=[span for span in log.spans if span.kind in ("out", "in")])
    found.stalls = _stalls(log.spans, found.copies)
    for span, why in found.spans:
        _charge(found.all, span)
        _charge(found.tags.setdefault(span.tag, TagCosts()), span)
        if why:
            found.stalled_for[why] = found.stalled_for.get(why, 0) + span.end - span.begin
    waits: dict[int, list[tuple[int, int]]] = defaultdict(list)  # for copies, by device
    for span, why in found.stalls:
        if why != OTHER:
            waits[span.device].append((span.begin, span.end))
    waits = {device: _merged(stretches) for device, stretches in waits.items()}
    for span in found.copies:
        covered = _covered(waits.get(span.device, []), span.begin, span.end)
        found.copy_time += span.end - span.begin
        found.hidden_time += span.end - span.begin - covered
    return found


def _stalls(spans: list[Span], copies: list[Span]) -> list[tuple[Span, str]]:
    """The waits of computing streams, each until what it waited for had ended, and why. Between a wait's two
    events there is always some time, whether it waited or not."""
    copying = copy_streams(spans)
    inward = {(span.device, span.stream) for span in copies if span.kind == "in"}
    queues = _Queues(copies)
    stalls = []
    for wait in spans:
        if wait.kind != "wait" or (wait.device, wait.stream) in copying:
            continue
        source = (wait.device, wait.amount)
        why = BACK if source in inward else REUSE if source in copying else OTHER
        end = wait.end if why == OTHER else min(wait.end, queues.end_of_copy(wait))
        if end > wait.begin:
            stalls.append((wait._replace(end=end), why))
    return stalls


class _Queues:
    """The copies of each stream, in its order: that in which they were submitted, begin and end."""

    def __init__(self, copies: list[Span]) -> None:
        self._of: dict[tuple[int, int, int], list[Span]] = defaultdict(list)  # storage 0: all of the stream
        for copy in sorted(copies, key=lambda copy: (copy.begin, copy.end)):
            # What is done for one storage may also wait until another one's copy out has read memory.
            for storage in {0, copy.storage if copy.kind == "in" else 0}:
                self._of[copy.device, copy.stream, storage].append(copy)

    def end_of_copy(self, wait: Span) -> int:
        """The end of the copy that `wait` is for; 0 if there is none. A wait that names no storage is for the
        stream's last copy that was submitted before the wait and began before its end."""
        for storage in (wait.storage, 0):
            queue = self._of.get((wait.device, wait.amount, storage), [])
            submitted = bisect_right(queue, wait.submitted, key=lambda copy: copy.submitted)
            begun = bisect_left(queue, wait.end, key=lambda copy: copy.begin)
            if index := min(submitted, begun):
                return queue[index - 1].end
        return 0


def _charge(costs: TagCosts, span: Span) -> None:
    taken = span.end - span.begin
    if span.kind == "out":
        costs.out_bytes += span.amount
        costs.out_time += taken
    elif span.kind == "in":
        costs.in_bytes += span.amount
        costs.in_time += taken
    else:
        costs.stalls += 1
        costs.stalled += taken


def _merged(stretches: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for begin, end in sorted(stretches):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((begin, end))
    return merged


def _covered(stretches: list[tuple[int, int]], begin: int, end: int) -> int:
    index = max(0, bisect_right(stretches, (begin, begin)) - 1)
    covered = 0
    for first, last in stretches[index:]:
        if first >= end:
            break
        covered += max(0, min(last, end) - max(first, begin))
    return covered


def sites_of(log: RunLog, copies: Copies) -> list[Site]:
    """By the bytes of one storage, then by all that moved: the largest first."""
    sites: dict[tuple[str, str, int], Site] = {}
    of_storage: dict[int, Site] = {}
    makers: dict[int, set[str]] = defaultdict(set)  # of one storage autograd can save several tensors
    lines: dict[int, str] = {}
    for event in log.events:
        if event[0] == "offload":
            _, _, storage, _, size, _copied, region, memory = event
            site = sites.setdefault((region, memory, size), Site(region, memory, size))
            site.times += 1
            of_storage[storage] = site
        elif event[0] == "from":
            _, _, storage, made_by, line = event
            if made_by:
                makers[storage].add(made_by)
            lines.setdefault(storage, line)
    for storage, site in of_storage.items():
        site.made_by += sorted(makers[storage] - {*site.made_by})
        line = lines.get(storage, "")
        if line and line not in site.lines:
            site.lines.append(line)
    costs: dict[int, TagCosts] = defaultdict(TagCosts)
    for span, _ in copies.spans:
        if span.storage in of_storage:
            _charge(costs[id(of_storage[span.storage])], span)
    for site in sites.values():
        site.costs = costs[id(site)]
    return sorted(sites.values(), key=lambda site: (-site.bytes, -site.times, site.memory))
