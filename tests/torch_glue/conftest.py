# SPDX-License-Identifier: Apache-2.0
"""Runs programs in processes of their own: an allocator can be chosen only before CUDA starts."""

import ctypes
import json
import os
import pathlib
import subprocess
import sys
from functools import cache

import pytest
from forked import Forked, fits

HERE = pathlib.Path(__file__).parent
EMULATED = os.environ.get("SPILLWAY_EMULATE") == "1"
SCHEDULES = ("eager", "late") if EMULATED else ("real",)
# In how many processes the cases run, so that pytest-xdist can run them at once.
PARTS = 1 if EMULATED else 6


def pytest_sessionstart(session):
    if EMULATED and hasattr(ctypes.CDLL(None), "spillway_emulator_ready"):
        return
    import torch

    if EMULATED or not torch.cuda.is_available():
        pytest.exit(
            "these tests need the emulated GPU (or a real one): run them with ctest -L torch, or with "
            "SPILLWAY_EMULATE=1 LD_PRELOAD=<build>/python/spillway/lib/libspillway_emulator.so "
            "PYTHONPATH=<build>/python",
            returncode=2,
        )


def pytest_collection_modifyitems(items):
    """For pytest-xdist: tests that share what a fixture has run stay in one process, one file's together."""
    for item in items:
        if "program" not in item.fixturenames and not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


@cache
def to_fork():
    return Forked()


def pytest_sessionfinish(session):
    if to_fork.cache_info().currsize:
        to_fork().close()


def run(source, silent=False, fresh=False, **environment):
    """Runs Python code that may import what lies in this folder; returns what it gave to `report(value)`.
    A failure fails the test with the program's output; so does a word on stderr where it must be `silent`.
    Where it must be `fresh`, and on a real GPU, nothing has been imported before it runs."""
    settings = {**os.environ, **environment}
    settings["PYTHONPATH"] = os.pathsep.join([str(HERE), settings.get("PYTHONPATH", "")])
    prelude = "import json\ndef report(value): print('reported:' + json.dumps(value), flush=True)\n"
    if EMULATED and not fresh and fits(settings):
        done = to_fork().run(prelude + source, environment=settings, timeout=600, quickly=not silent)
    else:
        command = [sys.executable, "-c", prelude + source]
        done = subprocess.run(command, env=settings, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0 and not (silent and done.stderr), (
        f"exit status {done.returncode}\n{done.stdout}{done.stderr}"
    )
    _, found, value = done.stdout.rpartition("reported:")
    return json.loads(value) if found else None


wanted = {}  # names of cases by allocator, part and schedule


def pytest_collection_finish(session):
    for item in session.items:
        case = getattr(item, "callspec", None) and item.callspec.params.get("case")
        if case:
            wanted.setdefault(case[:3], set()).add(case[3])


@cache
def outcomes(allocator, part, schedule):
    """The results of the requested cases, or a part of them, under these settings, in one process."""
    settings = {"SPILLWAY_EMULATE_SCHEDULE": schedule, "SPILLWAY_EMULATE_CHECK": "1"} if EMULATED else {}
    names = wanted[allocator, part, schedule]
    return run(f"import cases; report(cases.run({allocator!r}, {names!r}))", **settings)


def cases_over(allocator):
    """(allocator, part, schedule, name) of each; those of one part are a group of pytest-xdist's."""
    import cases

    return [
        pytest.param(
            (allocator, index % PARTS, schedule, name),
            id=f"{name}-{schedule}",
            marks=pytest.mark.xdist_group(f"{allocator}-{index % PARTS}"),
        )
        for index, (name, function) in enumerate(sorted(cases.load().items()))
        for schedule in SCHEDULES
        if schedule != "eager" or function.__module__ in cases.ABOUT_ORDER
        if allocator == "spillway" or function.__module__ not in cases.ON_SPILLWAY
    ]


@pytest.fixture
def program():
    return run
