# SPDX-License-Identifier: Apache-2.0
"""Figures of fragmentation: traces of training, replayed over the allocators on the emulated GPU."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from bench.figures.registry import Session, figure
from bench.fragmentation.run import WORKLOADS, measure, record


@cache
def replayed(workload: str) -> dict[str, Any]:
    """Reserved over allocated bytes at their peaks, by allocator, over a trace recorded just before."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / workload
        record(workload, path)
        return measure(path)["reserved_over_allocated"]


@figure(
    "fragmentation_online",
    "reserved bytes / allocated bytes, at their peaks, worst trace",
    "<= 1.03",
    "emulated",
)
def online(session: Session) -> float:
    """Over traces of the demonstration, a ResNet, varying batches and varying lengths, reserved memory hardly
    exceeds allocated memory, at their peaks."""
    return max(replayed(workload)["spillway"] for workload in WORKLOADS)


@figure("fragmentation_replayed", "the same with the trace's requests as a plan", "<= 1.01", "emulated")
def planned(session: Session) -> float:
    """A step that repeats reserves next to nothing beyond its peak of allocated bytes."""
    return max(replayed(workload)["replayed"] for workload in WORKLOADS)
