# SPDX-License-Identifier: Apache-2.0
"""Files that jobs have written: what the fuzzers mutate."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from launched import spillway

HERE = Path(__file__).parent


def _run(verb: str, folder: Path, *options: str) -> None:
    job = [sys.executable, HERE / "seed_job.py", folder]
    trace = str(folder / "calls")
    done = spillway(verb, *options, "--report", folder / "report", "--", *job, SPILLWAY_PRELOAD_TRACE=trace)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="session")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a job with a budget: page, trace, calls, plans, and in "report" its log and plans. In
    "dry/report" the log and the answer of a dry run."""
    folder = tmp_path_factory.mktemp("seeds")
    clock = ("--clock", "virtual", "--link-h2d", "1GiB", "--link-d2h", "1GiB")
    budget = ("--budget", "50%", "--keep-model-state")  # with model state on the GPU it needs a plan
    _run("emulate", folder, *clock, *budget, "--operators", "--plans", str(folder / "plans"))
    (folder / "dry").mkdir()
    _run("dry-run", folder / "dry", "--ratio", "0.5")
    return folder
