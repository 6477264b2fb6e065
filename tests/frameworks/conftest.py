# SPDX-License-Identifier: Apache-2.0
"""Frameworks' features on the emulated GPU, which is preloaded into the process that runs pytest."""

import contextlib
import ctypes
import json
import os
import pathlib
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from forked import Forked, fits

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


def changed(environment):
    """This process's, with these changes and with this folder's modules; a variable that is None is taken
    away."""
    variables = {**os.environ, **environment}
    variables["PYTHONPATH"] = os.pathsep.join([str(HERE), variables.get("PYTHONPATH") or ""])
    return {name: value for name, value in variables.items() if value is not None}


def python(*arguments, **environment):
    """Runs Python in a process of its own, in the changed environment."""
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        env=changed(environment),
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture(name="python")
def python_fixture():
    return python


@pytest.fixture(scope="session")
def call_in_process():
    """Runs CALL with these arguments in a process of its own: a forked one if its environment allows it."""
    with contextlib.closing(Forked()) as first:

        def call(function, arguments, environment):
            words = [function.__module__, function.__name__, json.dumps(arguments)]
            variables = changed(environment)
            if fits(variables):
                return first.run(CALL, words, variables, quickly=True)
            return python("-c", CALL, *words, **environment)

        yield call


@pytest.fixture(scope="session")
def ranks(tmp_path_factory, call_in_process):
    """Calls a function of the test's module as `count` ranks of one job, each in a process of its own with a
    device of its own: gives the results in the order of ranks. The function finds the usual variables, and
    where the ranks meet in RENDEZVOUS."""

    def call(count, function, *arguments, **environment):
        store = tmp_path_factory.mktemp("job") / "store"
        settings = {"WORLD_SIZE": str(count), "RENDEZVOUS": f"file://{store}"}
        settings |= {"SPILLWAY_EMULATE_DEVICES": str(count)} | environment
        with ThreadPoolExecutor(count) as pool:
            started = [
                pool.submit(
                    call_in_process, function, arguments, settings | {"RANK": rank, "LOCAL_RANK": rank}
                )
                for rank in map(str, range(count))
            ]
        ended = [each.result() for each in started]
        assert all(done.returncode == 0 for done in ended), "".join(
            done.stdout + done.stderr for done in ended
        )
        return [json.loads(done.stdout.rpartition("result:")[2]) for done in ended]

    return call


@pytest.fixture(scope="session")
def elsewhere(call_in_process):
    """Calls a function of the test's module in a process of its own: `elsewhere(grow, 3, NAME=value)`.

    Arguments and result travel as JSON; names are environment variables.
    """

    def call(function, *arguments, **environment):
        done = call_in_process(function, arguments, environment)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout.rpartition("result:")[2])

    return call
