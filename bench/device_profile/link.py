# SPDX-License-Identifier: Apache-2.0
"""The link of a GPU, from the measurements of `spillway bench copy`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spillway.bench.results import Measured

KIND = "pinned"
FILTER = f"BM_Copy/.*/(pageable|{KIND})/|BM_BothWays/{KIND}"
_UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_DIRECTIONS = {"h2d": "to_device", "d2h": "to_host"}


class Disturbed(Exception):
    """The measured times contradict each other."""


def bytes_of(text: str) -> int:
    """Of a size such as 64MiB."""
    return int(text[:-3]) * _UNITS[text[-3:]]


def line(times: Mapping[int, float]) -> dict[str, float]:
    """Seconds by bytes, as latency + bytes / rate, through the times of the smallest and the largest size."""
    small, large = min(times), max(times)
    if times[large] <= times[small]:
        raise Disturbed(f"{large} bytes took no longer than {small}: is something else running on this GPU?")
    rate = (large - small) / (times[large] - times[small])
    return {"latency": max(0.0, times[small] - small / rate), "rate": rate}


def of(measured: list[Measured]) -> dict[str, Any]:
    """Rate and latency by direction, the rates' share with both directions busy, and the pageable rate."""

    def copies(direction: str, kind: str) -> dict[str, float]:
        times = {}
        for one in measured:
            if one.family == "Copy" and one.parameters.startswith(f"{direction} {kind} "):
                times[bytes_of(one.parameters.split()[-1])] = one.median
        return line(times)

    found = {name: copies(direction, KIND) for name, direction in _DIRECTIONS.items()}
    [both] = [one for one in measured if (one.family, one.parameters) == ("BothWays", KIND)]
    alone = max(both.counters["bytes"] / each["rate"] for each in found.values())
    pageable = min(copies(direction, "pageable")["rate"] for direction in _DIRECTIONS.values())
    return {**found, "duplex": min(1.0, alone / both.median), "pageable": pageable}
