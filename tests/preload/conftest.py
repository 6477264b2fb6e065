# SPDX-License-Identifier: Apache-2.0
"""Runs the scripts that know nothing of Spillway."""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from forked import Forked
from launched import clean_environment
from spillway import launch

HERE = Path(__file__).parent
SCRIPTS = HERE / "scripts"
# Those that start processes, or end in a way of their own, are started; the others are forked.
STARTED = {
    "crash",
    "data_loader_workers",
    "ddp",
    "fork_after_cuda",
    "notebook",
    "starts_others",
    "terminated",
}
# tests/gpu sets it: on the emulated GPU, whatever the machine has, or on its real one.
EMULATED = os.environ.get("REAL_GPU") != "1"


@dataclass(frozen=True)
class Done:
    status: int
    stdout: str
    stderr: str
    # Bytes, by step of an optimizer, over all processes.
    moved: list[int]
    offloadable: list[int]
    kept: list[int]  # because offloading does not lower the peak


def environment(folder: Path) -> dict[str, str]:
    """The environment without Spillway's settings, but with its package and the probe for `Done.moved`."""
    path = os.pathsep.join([str(HERE / "probe"), os.environ["PYTHONPATH"]])
    return clean_environment() | {
        "PYTHONPATH": path,
        "OMP_NUM_THREADS": "1",
        "JOB_PROBE": str(folder / "moved"),
    }


def done(command: list[str], env: dict[str, str], run: Callable[..., Any] | None = None) -> Done:
    """What `command` does, or the code that `run` runs."""
    probe = Path(env["JOB_PROBE"])
    probe.unlink(missing_ok=True)
    if run is None:
        ended = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=600)
    else:
        ended = run(*command, environment=env)
    lines = [line.split() for line in probe.read_text().splitlines()] if probe.exists() else []
    moved, offloadable, kept = ([int(line[column]) for line in lines] for column in (0, 1, 2))
    return Done(ended.returncode, ended.stdout, ended.stderr, moved, offloadable, kept)


def under_spillway(script: str, folder: Path, *options: str, **changes: str) -> Done:
    """`spillway emulate OPTIONS -- python scripts/SCRIPT.py`, or `spillway run` on a real GPU; one
    that is for several ranks runs under torchrun."""
    command = [sys.executable, str(SCRIPTS / f"{script}.py")]
    if script == "ddp":
        command[1:1] = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
        options = ("--devices", "2", *options)
    verb = ["emulate", "--memory", "1GiB"] if EMULATED else ["run"]
    launcher = [sys.executable, "-m", "spillway", *verb, *options, "--"]
    if EMULATED and script not in STARTED:
        command = to_fork().stand_in(*command[1:])
        changes |= to_fork().variables
    return done(launcher + command, environment(folder) | changes)


LIBRARIES = {"LD_PRELOAD": f"{launch.SHIM}:{launch.EMULATOR}", "SPILLWAY_EMULATE": "1"}


@cache
def to_fork() -> Forked:
    with tempfile.TemporaryDirectory() as folder:
        first = Forked(environment(Path(folder)) | LIBRARIES)
    atexit.register(first.close)
    return first


@pytest.fixture(scope="session")
def forked() -> Callable[..., Done]:
    """Calls `forked(folder, code, NAME=value)`: the code as a program on the emulated GPU whose environment
    has these changes. It is forked from one process that has imported torch. What PyTorch starts at the end
    of its import begins afterwards; only the preload library does not observe the program."""

    def run(folder: Path, code: str, **changes: str) -> Done:
        return done([code], environment(folder) | LIBRARIES | changes, to_fork().run)

    return run
