# SPDX-License-Identifier: Apache-2.0
"""Jobs that write a report, each in a process of its own on the emulated GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from launched import spillway

HERE = Path(__file__).parent
JOB = HERE / "job.py"
# A modeled link so slow that not all copies hide, and the same times in every run.
CLOCK = ("--clock", "virtual", "--link-h2d", "1GiB", "--link-d2h", "1GiB")


def command(folder: Path | None, *options: str) -> list[str]:
    report = ["--report", str(folder)] if folder else []
    run = [sys.executable, "-m", "spillway", "emulate", *CLOCK, *options, *report]
    return [*run, "--", sys.executable, str(JOB)]


def run_job(folder: Path | None, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return spillway(*command(folder, *options)[3:], **environment)


@dataclass(frozen=True)
class Job:
    folder: Path
    truth: dict[str, Any]
    plain: dict[str, Any]  # of the same job that moves nothing

    @property
    def logs(self) -> list[Path]:
        return sorted(self.folder.glob("*.spillway"))


@pytest.fixture(scope="session")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """A job that offloads half of its storages, and the same job without offload."""
    folder = tmp_path_factory.mktemp("jobs") / "out"
    moved = run_job(folder, "--ratio", "0.9")
    assert moved.returncode == 0, moved.stderr
    plain = run_job(None, "--ratio", "0")
    assert plain.returncode == 0, plain.stderr
    return Job(folder, json.loads(moved.stdout), json.loads(plain.stdout))
