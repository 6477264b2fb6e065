# SPDX-License-Identifier: Apache-2.0
"""Computing time by operator, if operators were recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from spillway.report.log import Operator

__all__ = ["Time", "by_name", "by_tag"]


@dataclass
class Time:
    """Of the calls that have something in common. `total` and `longest` are nanoseconds of the device's."""

    what: str
    calls: int = 0
    total: int = 0
    longest: int = 0


def by_name(calls: Iterable[Operator]) -> list[Time]:
    """Sorted by time, longest first."""
    return _summed(calls, lambda call: call.name)


def by_tag(calls: Iterable[Operator]) -> list[Time]:
    """The same by the tag that their results were for."""
    return _summed(calls, lambda call: call.tag)


def _summed(calls: Iterable[Operator], key: Callable[[Operator], str]) -> list[Time]:
    times: dict[str, Time] = {}
    for call in calls:
        time = times.setdefault(key(call), Time(key(call)))
        time.calls += 1
        time.total += call.end - call.begin
        time.longest = max(time.longest, call.end - call.begin)
    return sorted(times.values(), key=lambda time: (-time.total, time.what))
