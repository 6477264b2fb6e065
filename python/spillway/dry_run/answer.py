# SPDX-License-Identifier: Apache-2.0
"""Merges the files of all processes of one run. Imports no torch."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spillway._files import read_text
from spillway._text import parse_json

__all__ = ["QUESTION", "SUFFIX", "Answer", "missing", "read"]

# The folder of a run: what each process is to do, and what it writes.
QUESTION = "question.json"
SUFFIX = ".dry.json"  # of the file of a process


@dataclass
class Answer:
    """One run. `processes` are those that used a GPU, by rank, as figures.py makes them, with more."""

    alternative: str
    status: int
    processes: list[dict[str, Any]] = field(default_factory=list)
    error: str = ""  # the last line on stderr, where it was kept and the run failed
    with_more_memory: Answer | None = None  # the same on a GPU that has enough, where it did not fit

    @property
    def devices(self) -> list[dict[str, Any]]:
        return [device for process in self.processes for device in process["devices"]]

    @property
    def ended(self) -> dict[str, Any] | None:
        """Where memory ended, if it did."""
        return next((each["out_of_memory"] for each in self.devices if each["out_of_memory"]), None)

    @property
    def steps_from(self) -> Answer:
        """The run that got to its end, if one did."""
        return self.with_more_memory or self

    @property
    def fits(self) -> bool | None:
        """None where nothing is known, or the program failed for another reason."""
        if not self.devices:
            return None
        if self.ended is not None:
            return False
        return True if self.status == 0 else None

    @property
    def peak(self) -> int:
        """Allocated, on the device that held most."""
        return max((int(each["peak_allocated_bytes"]) for each in self.devices), default=0)

    @property
    def reserved(self) -> int:
        return max((int(each["peak_reserved_bytes"]) for each in self.devices), default=0)

    @property
    def step_ms(self) -> float | None:
        """Of the slowest process."""
        times = [each["steps"]["median_ms"] for each in self.processes]
        if self.unsettled is not None:
            return None
        return max((time for time in times if time is not None), default=None)

    @property
    def unsettled(self) -> dict[str, Any] | None:
        """A process that took steps, none of which followed its budget's plan twice, if there is one."""
        steps = ((each, each["steps"]) for each in self.processes)
        return next((each for each, step in steps if step.get("count") and step["median_ms"] is None), None)

    @property
    def budget_missed(self) -> str | None:
        """The error of the budget that has ended a process, if one has."""
        return next((each["budget_missed"] for each in self.processes if each.get("budget_missed")), None)

    @property
    def pinned(self) -> int:
        """Of the host's memory at the peak, by all processes."""
        return sum(int(each["peak_pinned_bytes"]) for each in self.processes)

    def copied(self, direction: str) -> int:
        """Bytes in a step, of all processes; "to_host" or "to_device"."""
        return sum(int(each["copied_per_step"][f"{direction}_bytes"]) for each in self.processes)

    def document(self, samples: float | None) -> dict[str, Any]:
        """For JSON."""
        for process in self.processes:
            step = process["steps"]["median_ms"]
            process["steps"]["samples_per_second"] = samples / step * 1e3 if samples and step else None
            for device in process["devices"]:
                if device["out_of_memory"]:
                    device["out_of_memory"]["missing_bytes"] = missing(device)
        return {
            "alternative": self.alternative,
            "exit_status": self.status,
            "fits": self.fits,
            "error": self.error or None,
            "with_more_memory": self.with_more_memory and self.with_more_memory.document(samples),
            "processes": self.processes,
        }


def missing(device: dict[str, Any]) -> int | None:
    """How much more than there is would have been allocated where memory ended; None where there was room,
    but not in one piece: what would have been missing later is not known."""
    ended = device["out_of_memory"]
    short = int(ended["allocated_bytes"] + ended["requested_bytes"] - device["available_bytes"])
    return short if short > 0 else None


def read(folder: Path, alternative: str, status: int) -> Answer:
    processes = [parse_json(read_text(path)) for path in sorted(folder.glob(f"*{SUFFIX}"))]
    return Answer(alternative, status, sorted(processes, key=_rank))


def _rank(process: dict[str, Any]) -> tuple[int, int]:
    rank = str(process["rank"])
    return int(rank) if re.fullmatch("[0-9]{1,9}", rank) else 0, int(process["process"])
