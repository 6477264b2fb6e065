# SPDX-License-Identifier: Apache-2.0
"""Every test here runs on the emulated GPU, which is preloaded into the process that runs pytest."""

import contextlib
import ctypes
import json
import os
import pathlib

import pytest
from forked import Forked

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
            "these tests need the emulated GPU: run them with ctest -L torch, or with SPILLWAY_EMULATE=1 and "
            "LD_PRELOAD=<build>/python/spillway/lib/libspillway_emulator.so and PYTHONPATH=<build>/python",
            returncode=2,
        )


@pytest.fixture(scope="session")
def to_fork():
    with contextlib.closing(Forked()) as first:
        yield first


@pytest.fixture(scope="session")
def elsewhere(to_fork):
    """Calls a function of the test's module in a process of its own, with other settings of the emulated GPU.

    `elsewhere(train, "cuda", rng="cpu")` has SPILLWAY_EMULATE_RNG=cpu. Arguments and result travel as JSON.
    """

    def call(function, *arguments, **settings):
        environment = dict(os.environ)
        environment.update({f"SPILLWAY_EMULATE_{name.upper()}": value for name, value in settings.items()})
        paths = [str(HERE), str(HERE.parent / "support"), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(paths)
        words = [function.__module__, function.__name__, json.dumps(arguments)]
        done = to_fork.run(CALL, words, environment, quickly=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout.rpartition("result:")[2])

    return call


@pytest.fixture(scope="session")
def under_schedules(elsewhere):
    """Calls a function as `elsewhere` does, once under each schedule: eager, late, and some shuffled ones.

    Returns the results by schedule. A failure names its schedule, so `schedule="shuffled:3"` repeats it.
    """

    def call(function, *arguments, seeds=3, **settings):
        results = {}
        for schedule in ("eager", "late", *(f"shuffled:{seed}" for seed in range(1, seeds + 1))):
            try:
                results[schedule] = elsewhere(function, *arguments, schedule=schedule, **settings)
            except AssertionError as error:
                raise AssertionError(f"under SPILLWAY_EMULATE_SCHEDULE={schedule}: {error}") from error
        return results

    return call


class Emulator:
    """Counts and reports of the emulated runtime in this process."""

    def __init__(self):
        self._library = ctypes.CDLL(None)
        self._library.spillway_emulator_count.restype = ctypes.c_uint64
        self._library.spillway_emulator_race.restype = ctypes.c_char_p

    def count(self, what):
        return self._library.spillway_emulator_count(what.encode())

    def reports(self):
        kept = []
        while (text := self._library.spillway_emulator_race(ctypes.c_size_t(len(kept)))) is not None:
            kept.append(text.decode())
        return kept


@pytest.fixture
def emulator():
    return Emulator()
