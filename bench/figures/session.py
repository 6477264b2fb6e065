# SPDX-License-Identifier: Apache-2.0
"""One run of figures: where it runs, and what several figures share."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from spillway import launch

from bench.results import RunFailed, last_json, output_of

PROBES = Path(__file__).parent / "probes"
# Benchmark programs have the emulated GPU in them, and measure our own CPU time on it.
EMULATED = {**os.environ, "SPILLWAY_EMULATE": "1"}


class Session:
    """Runs the demonstration, probes and benchmark programs; each result is measured once."""

    def __init__(self, device: str, programs: Path) -> None:
        self.device = device  # cuda or emulated
        self.programs = programs.resolve()
        self.demo = cache(self._demo)
        self.probe = cache(self._probe)
        self.preloaded = cache(self._preloaded)
        self.dry = cache(self._dry)
        self.benchmark = cache(self._benchmark)
        self.program = cache(self._program)
        self.instructions = cache(self._instructions)

    def _probe(self, name: str, *arguments: str) -> dict[str, Any]:
        """The JSON that probes/NAME.py prints."""
        environment = launch.environment(True) if self.device == "emulated" else dict(os.environ)
        return json.loads(output_of(_probing(name, *arguments), environment))

    def _preloaded(self, name: str, *arguments: str) -> dict[str, Any]:
        """The same under the preload library, which is there on the emulated GPU anyway."""
        environment = launch.environment(self.device == "emulated")
        return json.loads(output_of(_probing(name, *arguments), environment))

    def _dry(self, profile: str, name: str, *arguments: str) -> dict[str, Any]:
        """The same in a dry run with that profile, on every machine alike."""
        dry = ["-m", "spillway", "dry-run", profile, "--"]
        text = output_of([sys.executable, *dry, *_probing(name, *arguments)], dict(os.environ))
        return last_json(text)

    def _demo(self, allocator: str = "spillway") -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "demo.json"
            options = ["--device", self.device, "--allocator", allocator, "--json", str(path)]
            output_of([sys.executable, "-m", "spillway.demo", *options], dict(os.environ))
            return json.loads(path.read_text())

    def _benchmark(self, program: str) -> dict[str, float]:
        options = ["--benchmark_format=json", "--benchmark_min_time=0.2"]
        text = output_of([str(self._built(program)), *options], EMULATED)
        return {entry["name"]: entry["cpu_time"] for entry in json.loads(text)["benchmarks"]}

    def _program(self, name: str, *arguments: str) -> dict[str, Any]:
        """The JSON that a benchmark program of its own kind prints, on the emulated GPU."""
        return json.loads(output_of([str(self._built(name)), *arguments], EMULATED))

    def _instructions(self, name: str, inside: str, *arguments: str) -> int:
        """How many instructions a program takes inside the functions that match, counted by callgrind."""
        with tempfile.TemporaryDirectory() as folder:
            counts = Path(folder) / "counts"
            valgrind = [
                "valgrind",
                "--tool=callgrind",
                "--collect-atstart=no",
                f"--toggle-collect={inside}",
                f"--callgrind-out-file={counts}",
            ]
            try:
                output_of([*valgrind, str(self._built(name)), *arguments], EMULATED)
            except FileNotFoundError as missing:
                raise RunFailed("valgrind is not installed") from missing
            total = next(line for line in counts.read_text().splitlines() if line.startswith("totals:"))
            return int(total.split()[1])

    def _built(self, program: str) -> Path:
        path = self.programs / program
        if not path.exists():
            raise RunFailed(f"{path} is not built")
        return path


def _probing(name: str, *arguments: str) -> list[str]:
    return [sys.executable, str(PROBES / f"{name}.py"), *arguments]
