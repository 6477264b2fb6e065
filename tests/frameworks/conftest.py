# SPDX-License-Identifier: Apache-2.0
"""Frameworks' features on the emulated GPU, which is preloaded into the process that runs pytest."""

import ctypes
import json
import os
import pathlib
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

HERE = pathlib.Path(__file__).parent
CALL = """
import importlib, json, sys
module, function, arguments = sys.argv[1:]
print("result:" + json.dumps(getattr(importlib.import_module(module), function)(*json.loads(arguments))))
"""


def pytest_sessionstart(session):
    here = hasattr(ctypes.CDLL(None), "spillway_emulator_ready")
    if not here or os.environ.get("SPILLWAY_EMULATE") != "1":
        pytest.exit(
            "these tests need the emulated GPU: run them with ctest -R frameworks, or with "
            "SPILLWAY_EMULATE=1, SPILLWAY_EMULATE_RNG=cpu, "
            "LD_PRELOAD=<build>/python/spillway/lib/libspillway_emulator.so and "
            "PYTHONPATH=<build>/python",
            returncode=2,
        )


def python(*arguments, **environment):
    """Runs Python in a process of its own, with this folder's modules and these changes to the environment; a
    variable that is None is taken away."""
    changed = {**os.environ, **environment}
    changed["PYTHONPATH"] = os.pathsep.join([str(HERE), changed.get("PYTHONPATH") or ""])
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        env={name: value for name, value in changed.items() if value is not None},
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture(name="python")
def python_fixture():
    return python


@pytest.fixture(scope="session")
def ranks(tmp_path_factory):
    """Calls a function of the test's module as `count` ranks of one job, each in a process of its own with a
    device of its own: gives the results in the order of ranks. The function finds the usual variables, and
    where the ranks meet in RENDEZVOUS."""

    def call(count, function, *arguments, **environment):
        store = tmp_path_factory.mktemp("job") / "store"
        settings = {"WORLD_SIZE": str(count), "RENDEZVOUS": f"file://{store}"}
        settings |= {"SPILLWAY_EMULATE_DEVICES": str(count)} | environment
        command = ["-c", CALL, function.__module__, function.__name__, json.dumps(arguments)]
        with ThreadPoolExecutor(count) as pool:
            started = [
                pool.submit(python, *command, RANK=str(rank), LOCAL_RANK=str(rank), **settings)
                for rank in range(count)
            ]
        ended = [each.result() for each in started]
        assert all(done.returncode == 0 for done in ended), "".join(
            done.stdout + done.stderr for done in ended
        )
        return [json.loads(done.stdout.rpartition("result:")[2]) for done in ended]

    return call


@pytest.fixture(scope="session")
def elsewhere():
    """Calls a function of the test's module in a process of its own: `elsewhere(grow, 3, NAME=value)`.

    Arguments and result travel as JSON; names are environment variables.
    """

    def call(function, *arguments, **environment):
        done = python(
            "-c", CALL, function.__module__, function.__name__, json.dumps(arguments), **environment
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout.rpartition("result:")[2])

    return call
