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


class MeasureFailed(Exception):
    """A program that a figure needs failed; the message has its last lines."""


class Session:
    """Runs the demonstration, probes and benchmark programs; each result is measured once."""

    def __init__(self, device: str, programs: Path) -> None:
        self.device = device  # cuda or emulated
        self.programs = programs
        self.demo = cache(self._demo)
        self.benchmark = cache(self._benchmark)

    def probe(self, name: str, *arguments: str) -> dict[str, Any]:
        """The JSON that probes/NAME.py prints."""
        return json.loads(self._run([sys.executable, str(PROBES / f"{name}.py"), *arguments]))

    def _demo(self, allocator: str = "spillway") -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "demo.json"
            options = ["--device", self.device, "--allocator", allocator, "--json", str(path)]
            self._run([sys.executable, "-m", "spillway.demo", *options], here=True)
            return json.loads(path.read_text())

    def _benchmark(self, program: str) -> dict[str, float]:
        path = self.programs / program
        if not path.exists():
            raise MeasureFailed(f"{path} is not built")
        text = self._run([str(path), "--benchmark_format=json", "--benchmark_min_time=0.2"])
        return {entry["name"]: entry["cpu_time"] for entry in json.loads(text)["benchmarks"]}

    def _run(self, command: list[str], here: bool = False) -> str:
        """Its standard output. `here`: the program sets up its own device."""
        emulate = self.device == "emulated" and not here
        environment = launch.environment(True) if emulate else dict(os.environ)
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            tail = (done.stdout + done.stderr).strip().splitlines()[-12:]
            raise MeasureFailed(
                "\n".join([f"{' '.join(command)} ended with status {done.returncode}:", *tail])
            )
        return done.stdout
