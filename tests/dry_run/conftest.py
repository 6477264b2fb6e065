# SPDX-License-Identifier: Apache-2.0
"""Programs that run dry, each in a process of its own, forked from one that has imported torch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from launched import spillway

HERE = Path(__file__).parent
JOB = HERE / "job.py"
# Round figures: a product is its FLOPs by 1e15 a second, everything else next to nothing.
RATES = ("--rates", "memory=1e18,half=1e15,single=1e15,product=1")
DRY = ("dry-run", "--memory", "64GiB", *RATES)


def run_dry(*options: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """The job of job.py, by what `environment` makes of it."""
    return spillway(*DRY, *options, "--", sys.executable, JOB, **environment)


def asked(folder: Path, *options: str | Path, **environment: str) -> tuple[dict[str, Any], str, str]:
    """The JSON of a run that ends well, and what it printed: stdout, stderr."""
    output = folder / "answer.json"
    result = run_dry("--json", output, *options, **environment)
    assert result.returncode == 0, result.stderr
    document: dict[str, Any] = json.loads(output.read_text())
    return document, result.stdout, result.stderr


def device_of(document: dict[str, Any], run: int = 0) -> dict[str, Any]:
    (process,) = document["runs"][run]["processes"]
    (device,) = process["devices"]
    found: dict[str, Any] = device
    return found
