# SPDX-License-Identifier: Apache-2.0
"""Copies, what they made the computation wait for, and what moved most."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field

from spillway.report.clock import copy_streams
from spillway.report.log import RunLog, Span

__all__ = ["Copies", "Site", "TagCosts", "copies_of", "sites_of"]


@dataclass
class TagCosts:
    """What one region's tag has cost. Sizes are bytes, times nanoseconds of the device's."""

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
    stalls: list[tuple[Span, str]] = field(default_factory=list)  # of computing streams, and why
    stalled_for: dict[str, int] = field(default_factory=dict)  # nanoseconds by why
    copy_time: int = 0
    hidden_time: int = 0  # of it: nobody on the same device waited for a copy meanwhile

    @property
    def hidden_share(self) -> float | None:
        """Of the time that copies took, the part in which no computing stream of their device waited for a
        copy; None without any."""
        return self.hidden_time / self.copy_time if self.copy_time else None


@dataclass
class Site:
    """Storages of one size that one region moved from one place."""

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


BACK, REUSE, OTHER = "a copy back", "memory that a copy still read", "another stream"


def copies_of(log: RunLog) -> Copies:
    found = Copies()
    copying = copy_streams(log.spans)
    inward = {(span.device, span.stream) for span in log.spans if span.kind == "in"}
    for span in log.spans:
        if span.kind == "wait" and (span.device, span.stream) not in copying and span.end > span.begin:
            source = (span.device, span.amount)
            why = BACK if source in inward else REUSE if source in copying else OTHER
            found.stalls.append((span, why))
            found.stalled_for[why] = found.stalled_for.get(why, 0) + span.end - span.begin
        _charge(found.all, span, copying)
        if span.kind != "mark":
            _charge(found.tags.setdefault(span.tag, TagCosts()), span, copying)
    found.tags = {tag: costs for tag, costs in found.tags.items() if costs != TagCosts()}
    waits: dict[int, list[tuple[int, int]]] = defaultdict(list)  # for copies, by device
    for span, why in found.stalls:
        if why != OTHER:
            waits[span.device].append((span.begin, span.end))
    waits = {device: _merged(stretches) for device, stretches in waits.items()}
    for span in log.spans:
        if span.kind in ("out", "in"):
            covered = _covered(waits.get(span.device, []), span.begin, span.end)
            found.copy_time += span.end - span.begin
            found.hidden_time += span.end - span.begin - covered
    return found


def _charge(costs: TagCosts, span: Span, copying: set[tuple[int, int]]) -> None:
    taken = span.end - span.begin
    if span.kind == "out":
        costs.out_bytes += span.amount
        costs.out_time += taken
    elif span.kind == "in":
        costs.in_bytes += span.amount
        costs.in_time += taken
    elif span.kind == "wait" and (span.device, span.stream) not in copying and taken > 0:
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
    place = max(0, bisect_right(stretches, (begin, begin)) - 1)
    covered = 0
    for first, last in stretches[place:]:
        if first >= end:
            break
        covered += max(0, min(last, end) - max(first, begin))
    return covered


def sites_of(log: RunLog) -> list[Site]:
    """By the bytes of one storage, then by all that moved: the largest first."""
    sites: dict[tuple[str, str, int], Site] = {}
    of_storage: dict[int, Site] = {}
    makers: dict[int, set[str]] = defaultdict(set)  # of one storage autograd can save several tensors
    lines: dict[int, str] = {}
    for event in log.events:
        if event[0] == "move":
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
    copying = copy_streams(log.spans)
    costs: dict[int, TagCosts] = defaultdict(TagCosts)
    for span in log.spans:
        if span.storage in of_storage:
            _charge(costs[id(of_storage[span.storage])], span, copying)
    for site in sites.values():
        site.costs = costs[id(site)]
    return sorted(sites.values(), key=lambda site: (-site.bytes, -site.times, site.memory))
