# SPDX-License-Identifier: Apache-2.0
"""One run of figures: where it runs, and what several figures share."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from spillway import launch

PROBES = Path(__file__).parent / "probes"
# Benchmark programs have the emulated GPU in them, and measure our own CPU time on it.
EMULATED = {**os.environ, "SPILLWAY_EMULATE": "1"}


class MeasureFailed(Exception):
    """A program that a figure needs failed; the message has its last lines."""


class Session:
    """Runs the demonstration, probes and benchmark programs; each result is measured once."""

    def __init__(self, device: str, programs: Path) -> None:
        self.device = device  # cuda or emulated
        self.programs = programs
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
        return json.loads(self._run(_probing(name, *arguments), environment))

    def _preloaded(self, name: str, *arguments: str) -> dict[str, Any]:
        """The same under the preload library, which is there on the emulated GPU anyway."""
        environment = launch.environment(self.device == "emulated")
        return json.loads(self._run(_probing(name, *arguments), environment))

    def _dry(self, profile: str, name: str, *arguments: str) -> dict[str, Any]:
        """The same in a dry run with that profile, on every machine alike."""
        dry = ["-m", "spillway", "dry-run", profile, "--"]
        text = self._run([sys.executable, *dry, *_probing(name, *arguments)], dict(os.environ))
        return json.loads([line for line in text.splitlines() if line.startswith("{")][-1])

    def _demo(self, allocator: str = "spillway") -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "demo.json"
            options = ["--device", self.device, "--allocator", allocator, "--json", str(path)]
            self._run([sys.executable, "-m", "spillway.demo", *options], dict(os.environ))
            return json.loads(path.read_text())

    def _benchmark(self, program: str) -> dict[str, float]:
        options = ["--benchmark_format=json", "--benchmark_min_time=0.2"]
        text = self._run([str(self._built(program)), *options], EMULATED)
        return {entry["name"]: entry["cpu_time"] for entry in json.loads(text)["benchmarks"]}

    def _program(self, name: str, *arguments: str) -> dict[str, Any]:
        """The JSON that a benchmark program of its own kind prints, on the emulated GPU."""
        return json.loads(self._run([str(self._built(name)), *arguments], EMULATED))

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
                self._run([*valgrind, str(self._built(name)), *arguments], EMULATED)
            except FileNotFoundError as missing:
                raise MeasureFailed("valgrind is not installed") from missing
            total = next(line for line in counts.read_text().splitlines() if line.startswith("totals:"))
            return int(total.split()[1])

    def _built(self, program: str) -> Path:
        path = self.programs / program
        if not path.exists():
            raise MeasureFailed(f"{path} is not built")
        return path

    def _run(self, command: list[str], environment: dict[str, str]) -> str:
        """Its standard output."""
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            tail = (done.stdout + done.stderr).strip().splitlines()[-12:]
            raise MeasureFailed(
                "\n".join([f"{' '.join(command)} ended with status {done.returncode}:", *tail])
            )
        return done.stdout


def _probing(name: str, *arguments: str) -> list[str]:
    return [sys.executable, str(PROBES / f"{name}.py"), *arguments]
