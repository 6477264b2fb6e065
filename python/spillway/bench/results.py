# SPDX-License-Identifier: Apache-2.0
"""Google Benchmark's JSON, as one record for each benchmark."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

# What Google Benchmark appends to a name, and its own keys of an entry: the rest are counters.
_SUFFIXES = ("iterations:", "repeats:", "min_time:", "manual_time", "real_time", "process_time", "threads:")
_OWN = {
    "name", "family_index", "per_family_instance_index", "run_name", "run_type", "repetitions",
    "repetition_index", "threads", "aggregate_name", "aggregate_unit", "iterations", "real_time", "cpu_time",
    "time_unit", "label", "error_occurred", "error_message",
}  # fmt: skip
_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}


@dataclass
class Measured:
    """One benchmark over its repetitions: times in seconds, counters by name, or why there are none."""

    family: str  # "Copy"
    parameters: str  # "to_device pinned 64KiB"
    median: float = 0.0
    least: float = 0.0
    most: float = 0.0
    counters: dict[str, float] = field(default_factory=dict)
    skipped: str | None = None
    label: str = ""  # whose time it is, where not the device's


def read(document: dict[str, Any]) -> list[Measured]:
    """In the order in which they ran."""
    found: dict[str, Measured] = {}
    for entry in document["benchmarks"]:
        name = entry.get("run_name", entry["name"])
        one = found.setdefault(name, _named(name))
        if entry.get("error_occurred"):
            one.skipped = entry["error_message"]
            continue
        seconds = entry["real_time"] * _SECONDS[entry["time_unit"]]
        kind = entry.get("aggregate_name")
        if kind == "median":
            one.median = seconds
            one.label = entry.get("label", "")
            one.counters = {key: value for key, value in entry.items() if key not in _OWN}
        elif kind == "min":
            one.least = seconds
        elif kind == "max":
            one.most = seconds
    return list(found.values())


def families(measured: Iterable[Measured]) -> dict[str, list[Measured]]:
    """By family, in order."""
    result: dict[str, list[Measured]] = {}
    for one in measured:
        result.setdefault(one.family, []).append(one)
    return result


def _named(name: str) -> Measured:
    family, *rest = (part for part in name.split("/") if not part.startswith(_SUFFIXES))
    return Measured(family.removeprefix("BM_"), " ".join(rest))
