# SPDX-License-Identifier: Apache-2.0
"""Device bytes and offloaded bytes over time."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from spillway.report.log import RunLog

__all__ = ["Moment", "Usage", "family", "usage_by_device"]


def family(tag: str) -> str:
    """The group in which a tag is drawn: its first component."""
    return tag.split("/", 1)[0] or "(untagged)"


@dataclass
class Moment:
    """Bytes at one moment; `time` is the host's, nanoseconds."""

    time: int = 0
    device: int = 0
    offloaded: int = 0
    tags: dict[str, int] = field(default_factory=dict)  # of what is on the device
    offloaded_tags: dict[str, int] = field(default_factory=dict)

    @property
    def without(self) -> int:
        """The allocated bytes if nothing had been offloaded."""
        return self.device + self.offloaded


@dataclass
class Usage:
    """One device. `samples` are (time, device bytes, offloaded bytes, device bytes by family) at changes: of
    those in a short stretch the one with the most bytes is kept. All but `later_peak` is of the single
    events alone."""

    index: int
    peak: Moment = field(default_factory=Moment)
    peak_without: Moment = field(default_factory=Moment)
    samples: list[tuple[int, int, int, dict[str, int]]] = field(default_factory=list)
    tag_peaks: dict[str, int] = field(default_factory=dict)
    tag_bytes: dict[str, int] = field(default_factory=dict)  # ever allocated
    tag_blocks: dict[str, int] = field(default_factory=dict)
    steps: list[tuple[int, int]] = field(default_factory=list)  # of each step: peak with, peak without
    later_peak: int = 0  # by the statistics, where it is higher and came after the single events

    @property
    def most(self) -> int:
        """The peak of device memory, of all that is known."""
        return max(self.peak.device, self.later_peak)

    @property
    def most_without(self) -> int:
        """The peak without offload; where the log was full, it was at least that."""
        return max(self.peak_without.without, self.later_peak)


class _Device:
    """Accumulates one device's events."""

    def __init__(self, index: int, steps: int) -> None:
        self.usage = Usage(index, steps=[(0, 0)] * steps)  # those before its first use
        self.device = 0
        self.offloaded = 0
        self.tags: dict[str, int] = defaultdict(int)
        self.offloaded_tags: dict[str, int] = defaultdict(int)
        self.families: dict[str, int] = defaultdict(int)
        self.step = (0, 0)
        self.changed: int | None = None  # when, where that was not noted yet

    def change(self, time: int, tag: str, size: int) -> None:
        self.device += size
        self.tags[tag] += size
        self.families[family(tag)] += size
        usage = self.usage
        if size > 0:
            usage.tag_peaks[tag] = max(usage.tag_peaks.get(tag, 0), self.tags[tag])
            usage.tag_bytes[tag] = usage.tag_bytes.get(tag, 0) + size
            usage.tag_blocks[tag] = usage.tag_blocks.get(tag, 0) + 1
        self.changed = time

    def change_offloaded(self, time: int, tag: str, size: int) -> None:
        self.offloaded += size
        self.offloaded_tags[tag] += size
        self.changed = time

    def note(self, stretch: int) -> None:
        """Takes the moment down, if it differs from the last one."""
        time, self.changed = self.changed, None
        if time is None:
            return
        usage = self.usage
        if self.device > usage.peak.device:
            usage.peak = self.moment(time)
        if self.device + self.offloaded > usage.peak_without.without:
            usage.peak_without = self.moment(time)
        self.step = (max(self.step[0], self.device), max(self.step[1], self.device + self.offloaded))
        sample = (
            time,
            self.device,
            self.offloaded,
            {name: size for name, size in self.families.items() if size},
        )
        last = usage.samples[-1] if usage.samples else None
        if last is None or last[0] // stretch != time // stretch:
            usage.samples.append(sample)
        elif sample[1] + sample[2] >= last[1] + last[2]:
            usage.samples[-1] = sample

    def moment(self, time: int) -> Moment:
        tags = {tag: size for tag, size in self.tags.items() if size}
        offloaded = {tag: size for tag, size in self.offloaded_tags.items() if size}
        return Moment(time, self.device, self.offloaded, tags, offloaded)

    def step_ended(self) -> None:
        self.usage.steps.append(self.step)
        self.step = (self.device, self.device + self.offloaded)


def usage_by_device(log: RunLog, most: int = 6000) -> dict[int, Usage]:
    """Follows a log's events. `most`: how many samples are kept for each device."""
    stretch = max(1, log.ended // most)
    devices: dict[int, _Device] = {}
    blocks: dict[int, tuple[_Device, int, str]] = {}
    storages: dict[int, dict[str, Any]] = {}
    steps = 0
    of_block: dict[int, int] = {}  # the storage whose bytes a block has
    for event in log.events:
        kind, time = event[0], event[1]
        if kind != "fetch":  # the "new" before it is the fetched block
            for device in devices.values():
                device.note(stretch)
        if kind == "new":
            _, _, block, size, tag, index = event
            device = devices.get(index) or devices.setdefault(index, _Device(index, steps))
            blocks[block] = (device, size, tag)
            device.change(time, tag, size)
        elif kind == "free":
            found = blocks.pop(event[2], None)
            storage = storages.get(of_block.pop(event[2], 0))
            if found is None:
                continue
            device, size, tag = found
            device.change(time, tag, -size)
            if storage is not None and storage["block"] == event[2]:
                _be_away(storage, time, storage["bytes"])
        elif kind == "retag":
            found = blocks.get(event[2])
            if found is None:
                continue
            device, size, tag = found
            blocks[event[2]] = (device, size, event[3])
            device.change(time, tag, -size)
            device.change(time, event[3], size)
        elif kind == "offload":
            _, _, number, block, size, _copied, region, _memory = event
            on = blocks.get(block)
            if on is None:
                continue
            storages[number] = {
                "device": on[0],
                "block": block,
                "bytes": on[1],
                "offloaded": 0,
                "region": region,
            }
            of_block[block] = number
        elif kind == "fetch":
            storage, on = storages.get(event[2]), blocks.get(event[3])
            if storage is None or on is None:
                continue
            storage["block"] = event[3]
            of_block[event[3]] = event[2]
            _be_away(storage, time, max(0, storage["bytes"] - on[1]))
        elif kind == "end":
            storage = storages.pop(event[2], None)
            if storage is not None:
                _be_away(storage, time, 0)
        elif kind == "step":
            steps += 1
            for device in devices.values():
                device.step_ended()
    for device in devices.values():
        device.note(stretch)
    usages = {index: device.usage for index, device in devices.items()}
    for index, peak in _later_peaks(log).items():
        usage = usages.setdefault(index, Usage(index))
        usage.later_peak = peak if peak > usage.peak.device else 0
    return dict(sorted(usages.items()))


def _later_peaks(log: RunLog) -> dict[int, int]:
    """By device, the highest peak in the statistics after the single events. A peak that did not change since
    then is left out: it may be from before the log began."""
    peaks: dict[int, int] = {}
    if log.detailed_until is None or log.last is None:
        return peaks
    before: dict[str, int] = {}
    for time, statistics in [*log.steps, (log.ended, log.last)]:
        for index, device in statistics["devices"].items():
            peak = device["allocated_peak"]
            if time < log.detailed_until:
                before[index] = peak
            elif peak != before.get(index, 0):
                peaks[int(index)] = max(peaks.get(int(index), 0), peak)
    return peaks


def _be_away(storage: dict[str, Any], time: int, size: int) -> None:
    if size != storage["offloaded"]:
        storage["device"].change_offloaded(time, storage["region"], size - storage["offloaded"])
        storage["offloaded"] = size
