# SPDX-License-Identifier: Apache-2.0
"""Records and replays, each in a process of its own on the emulated GPU."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from spillway import launch

from bench.results import output_of

WORKLOADS = ("demo", "resnet", "batch", "length")
# What each allocator needs in its environment.
ALLOCATORS: dict[str, dict[str, str]] = {
    "spillway": {},
    "replayed": {"SPILLWAY_PLAN_REPLAY": "1"},
    "native": {},
    "expandable": {"PYTORCH_ALLOC_CONF": "expandable_segments:True"},
}
TARGET = 4 << 30  # allocated bytes at the peak: large enough that the granularity does not matter


def record(workload: str, path: Path) -> None:
    _run("workloads", [workload, str(path)], {})


def replay(path: Path, allocator: str, scale: int) -> dict[str, Any]:
    return json.loads(_run("replay", [allocator, str(path), str(scale)], ALLOCATORS[allocator]))


def measure(path: Path, allocators: Iterable[str] = ALLOCATORS, scale: int | None = None) -> dict[str, Any]:
    """Reserved over allocated memory at their peaks, by allocator. By default `scale` brings the peak to
    TARGET."""
    if scale is None:
        small = replay(path, "spillway", 1)["allocated_peak_bytes"]
        scale = max(1, -(-TARGET // max(small, 1)))
    runs = {name: replay(path, name, scale) for name in allocators}
    any_run = next(iter(runs.values()))
    return {
        "scale": scale,
        "allocated_peak_bytes": any_run["allocated_peak_bytes"],
        "events": any_run["events"],
        "reserved_over_allocated": {
            name: run["reserved_peak_bytes"] / run["allocated_peak_bytes"] for name, run in runs.items()
        },
    }


def _run(module: str, arguments: list[str], settings: dict[str, str]) -> str:
    """What the module of this package prints."""
    environment = {**launch.environment(True, memory="64GiB"), "OMP_NUM_THREADS": "1", **settings}
    command = [sys.executable, "-m", f"bench.fragmentation.{module}", *arguments]
    return output_of(command, environment)
