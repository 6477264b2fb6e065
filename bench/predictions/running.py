# SPDX-License-Identifier: Apache-2.0
"""A case in a process of its own: dry on the emulated GPU of its profile, or on the GPU of this machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from bench.predictions.cases import Case
from bench.results import ROOT, RunFailed, last_json, output_of

PEERS = ROOT / "build" / "peers" / "lib"
LIMIT = 300  # seconds


def missing(case: Case) -> str:
    """Why it cannot run here; empty where it can."""
    if case.needs and not (PEERS / case.needs).is_dir():
        return f"{case.needs} is not in build/peers (scripts/peers and scripts/predictions install it)"
    return ""


def run(case: Case, dry: bool, environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """What the program has measured of its last step. Raises RunFailed."""
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
    """What a program prints on a line that begins with "measured: ". Raises RunFailed."""
    try:
        return last_json(output_of(command, environment, LIMIT, tail=3))
    except RunFailed as failure:
        raise RunFailed(f"{name}: {failure}") from None
