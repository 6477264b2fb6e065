# SPDX-License-Identifier: Apache-2.0
"""Runs programs on the emulated GPU, once for each set of options."""

import json
import os
import pathlib
import sys
from dataclasses import dataclass
from functools import cache

from launched import spillway

PROGRAMS = pathlib.Path(__file__).parent / "programs"
os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":16:8"  # deterministic, and small beside the models


@dataclass(frozen=True)
class Ran:
    status: int
    cases: dict[str, dict]
    errors: str


def ran(*options, program="training.py", cases=()):
    """With Spillway's allocator, so that bytes can be compared."""
    return _ran(options, program, cases)


@cache
def _ran(options, program, cases):
    plain = ("emulate", "--check", "--schedule=late", "--allocator=spillway")
    done = spillway(*plain, *options, "--", sys.executable, PROGRAMS / program, *cases)
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return Ran(done.returncode, {each["case"]: each for each in found}, done.stderr)
