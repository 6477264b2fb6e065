# SPDX-License-Identifier: Apache-2.0
"""What the order checker costs: the demonstration's training with and without it, as the ratio of step times.

Usage: python -m bench.check_cost [--size small|demo] [--steps N] [--rounds N], with the built package on
PYTHONPATH. Writes one JSON object.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path


def step_times(folder: Path, check: bool, size: str, steps: int) -> dict[str, float]:
    """The median milliseconds of a step, by arm."""
    result = folder / "result.json"
    command = [
        sys.executable,
        "-m",
        "spillway",
        "run",
        "--emulate",
        *["--check"] * check,
        "--",
        sys.executable,
    ]
    command += ["-m", "spillway.demo", "--device", "emulated", "--size", size, "--steps", str(steps)]
    subprocess.run(
        [*command, "--json", result, "--picture", folder / "picture.png"], check=True, capture_output=True
    )
    return {arm["name"]: statistics.median(arm["step_ms"]) for arm in json.loads(result.read_text())["arms"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", default="demo", choices=("small", "demo"))
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rounds = [
            [step_times(Path(folder), check, chosen.size, chosen.steps) for check in (False, True)]
            for _ in range(chosen.rounds)
        ]
    ratios = {arm: [round(checked[arm] / plain[arm], 2) for plain, checked in rounds] for arm in rounds[0][0]}
    print(json.dumps({"size": chosen.size, "steps": chosen.steps, "ratios": ratios}))


if __name__ == "__main__":
    main()
