# SPDX-License-Identifier: Apache-2.0
"""The contents of a report about one process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from spillway.report.clock import Clock, copy_streams
from spillway.report.copies import Copies, Site, copies_of, sites_of
from spillway.report.log import RunLog
from spillway.report.memory import Usage, usage_by_device

__all__ = ["REASONS", "Digest", "Step", "digest"]

# Why storages stay on the device, in words.
REASONS = {
    "parameter": "parameters and their views: on the device anyway",
    "referenced_elsewhere": "something else keeps them: nothing would be gained",
    "not_on_device": "not on a GPU",
    "not_strided": "sparse, quantized or nested",
    "subclass": "tensors of a Python subclass",
    "tiny": "too small",
    "no_host_memory": "no pinned host memory left",
    "capturing": "a CUDA graph was being captured",
    "cannot_help": "offloading does not lower the peak",
}

REFUSERS = {
    "limit": "SPILLWAY_PINNED_LIMIT",
    "node": "SPILLWAY_NODE_PINNED_LIMIT",
    "machine": "the machine, or its control group",
    "driver": "the driver",
}


@dataclass
class Step:
    """Times are the device's, nanoseconds. The first step has no length if its begin is unknown."""

    number: int
    begin: int
    end: int
    stalled: int = 0


@dataclass
class Digest:
    log: RunLog
    clock: Clock
    usage: dict[int, Usage]
    copies: Copies
    sites: list[Site]
    steps: list[Step]  # of which there are single events to the end
    skipped: dict[str, dict[str, int]]  # by reason: storages, bytes; over all steps
    refused: dict[str, int]  # by who did
    regions: dict[str, dict[str, int]]  # by tag, over all steps: offloadable, offloaded, copied, fetched
    pinned_peak: int

    @property
    def first(self) -> Usage:
        """The device that needed most."""
        return max(self.usage.values(), key=lambda usage: usage.most, default=Usage(0))

    @property
    def later_steps(self) -> int:
        """How many ended when single events were not written any more."""
        return len(self.log.steps) - len(self.steps)

    @property
    def times_of(self) -> str:
        """The clock that measured times."""
        if not self.log.emulated:
            return "the GPU's events"
        return "the virtual clock" if self.log.about.get("clock") == "virtual" else "this machine's CPU clock"


def digest(log: RunLog) -> Digest:
    clock = Clock(log)
    copies = copies_of(log)
    skipped: dict[str, dict[str, int]] = {}
    regions: dict[str, dict[str, int]] = {}
    for each in log.tag_steps:
        total = regions.setdefault(
            each.tag, dict.fromkeys(("steps", "offloadable", "offloaded", "copied", "fetched"), 0)
        )
        total["steps"] += 1
        for what in ("offloadable", "offloaded", "copied", "fetched"):
            total[what] += getattr(each, what)
        for reason, count in each.skipped.items():
            sums = skipped.setdefault(reason, {"storages": 0, "bytes": 0})
            sums["storages"] += count["storages"]
            sums["bytes"] += count["bytes"]
    devices: dict[str, Any] = (log.last or {}).get("devices", {})
    refused: dict[str, int] = {}
    for device in devices.values():
        for who, count in device["refused"].items():
            if count:
                refused[who] = refused.get(who, 0) + count
    return Digest(
        log,
        clock,
        usage_by_device(log),
        copies,
        sites_of(log, copies),
        _steps(log, clock, copies),
        skipped,
        refused,
        regions,
        sum(device["pinned_peak"] for device in devices.values()),
    )


def _steps(log: RunLog, clock: Clock, copies: Copies) -> list[Step]:
    steps: list[Step] = []
    begin = _first_work(log, clock)
    for number, (time, _) in enumerate(log.steps):
        if log.detailed_until is not None and time >= log.detailed_until:
            break
        end = max(clock.at(time), begin)
        steps.append(Step(number, begin, end))
        begin = end
    index = 0
    for span, _ in sorted(copies.stalls, key=lambda stall: stall[0].begin):
        while index < len(steps) and steps[index].end <= span.begin:
            index += 1
        if index < len(steps) and span.begin >= steps[index].begin:
            steps[index].stalled += span.end - span.begin
    return steps


def _first_work(log: RunLog, clock: Clock) -> int:
    copying = copy_streams(log.spans)
    begins = [span.begin for span in log.spans if (span.device, span.stream) not in copying]
    first = min(begins, default=clock.at(0))
    if not log.steps:
        return first
    # A step's end alone is one mark on each device.
    before = [span for span in log.spans if span.submitted <= log.steps[0][0]]
    streams = {(span.device, span.stream) for span in before}
    only_ended = all(span.kind == "mark" for span in before) and len(before) == len(streams)
    return clock.at(log.steps[0][0]) if only_ended else first
