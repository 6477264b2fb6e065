# SPDX-License-Identifier: Apache-2.0
"""A case in a process of its own: dry on the emulated GPU of its profile, or on the GPU of this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.predictions.cases import Case

ROOT = Path(__file__).parents[2]
PEERS = ROOT / "build" / "peers" / "lib"
LIMIT = 300  # seconds


class CaseFailed(Exception):
    """The message has the program's last lines."""


def missing(case: Case) -> str:
    """Why it cannot run here; empty where it can."""
    if case.needs and not (PEERS / case.needs).is_dir():
        return f"{case.needs} is not in build/peers (scripts/peers and scripts/predictions install it)"
    return ""


def run(case: Case, dry: bool, environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """What the program has measured of its last step. Raises CaseFailed."""
    program = str(ROOT / "bench" / "predictions" / "programs" / f"{case.program}.py")
    spillway = [sys.executable, "-m", "spillway"]
    if dry:
        spillway += ["dry-run", case.profile, *case.run, "--"]
    elif case.run:
        spillway += ["run", *case.run, "--"]
    else:
        spillway = []
    command = [*spillway, sys.executable, program, *case.arguments]
    settings = dict(os.environ if environment is None else environment)
    if case.needs:  # only then: what lies there may not suit the other programs
        settings["PYTHONPATH"] = os.pathsep.join(filter(None, (settings.get("PYTHONPATH"), str(PEERS))))
    return measured(case.name, command, settings)


def measured(name: str, command: Sequence[str], environment: Mapping[str, str]) -> dict[str, Any]:
    """What a program prints on a line that begins with "measured: ". Raises CaseFailed."""
    try:
        done = subprocess.run(
            command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT, check=False
        )
    except subprocess.TimeoutExpired:
        raise CaseFailed(f"{name}: stopped after {LIMIT} s") from None
    lines = [line for line in done.stdout.splitlines() if line.startswith("measured: ")]
    if done.returncode != 0 or not lines:
        said = (done.stderr or done.stdout).strip().splitlines() or ["(no output)"]
        # The last of them may be Spillway's, about the dry run.
        raise CaseFailed(f"{name}: exit status {done.returncode}: {' | '.join(said[-3:])}")
    return json.loads(lines[-1].removeprefix("measured: "))
