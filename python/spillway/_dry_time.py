# SPDX-License-Identifier: Apache-2.0
"""Timers of programs in a dry run: they read the modeled time."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time as _time
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType
from typing import Any

__all__ = ["start"]

_READ = 1e-6  # seconds that a reading takes: a loop that waits for a time ends
_NAMES = ("perf_counter", "perf_counter_ns", "time", "time_ns", "sleep")
_REAL: dict[str, Callable[..., float]] = {name: getattr(_time, name) for name in _NAMES}


def start() -> None:
    """Installs the functions below in the module `time`, and in the main program's imports from it.

    `time.perf_counter`, `time.time` and their siblings in nanoseconds return the host's time of the virtual
    clock, which does not advance while Python computes; `time.sleep` advances it.

    Threads that Python has made, and forked children, have the real time: they wait for real things. So has
    `time.monotonic` in all of them.
    """
    _Clock.only = _Clock()
    modeled = {name: globals()[name] for name in _NAMES}
    _change({_REAL[name]: (name, function) for name, function in modeled.items()})
    os.register_at_fork(
        after_in_child=lambda: _change({function: (name, _REAL[name]) for name, function in modeled.items()})
    )


def perf_counter() -> float:
    return _reading("perf_counter", 1)


def perf_counter_ns() -> int:
    return int(_reading("perf_counter_ns", 10**9))


def time() -> float:
    return _reading("time", 1)


def time_ns() -> int:
    return int(_reading("time_ns", 10**9))


def sleep(seconds: float, /) -> None:
    _REAL["sleep"](seconds)
    if (clock := _clock()) is not None:
        clock.besides += float(seconds)


def _reading(name: str, units: int) -> float:
    clock = _clock()
    if clock is None:
        return _REAL[name]()
    since = clock.now() * units
    return clock.began[name] + (since if units == 1 else round(since))


def _clock() -> _Clock | None:
    """None where the real time counts: in threads that Python has made, but for the main one, and in
    processes that are no dry run. Threads of others, such as autograd's, go by the modeled one."""
    thread = threading.current_thread()
    own = thread is threading.main_thread() or isinstance(thread, threading._DummyThread)
    return _Clock.only if own else None


class _Clock:
    """Seconds since it was made. Threads: safe, but of two readings at once one may cost nothing."""

    only: _Clock | None = None

    def __init__(self) -> None:
        self._now_ms = ctypes.CDLL(None).spillway_emulator_now_ms
        self._now_ms.restype = ctypes.c_double
        self._began_ms = self._now_ms()
        self.besides = 0.0  # readings, and sleep
        self.began = {name: _REAL[name]() for name in _NAMES if name != "sleep"}

    def now(self) -> float:
        self.besides += _READ
        elapsed_ms: float = self._now_ms() - self._began_ms
        return elapsed_ms / 1e3 + self.besides


def _change(functions: dict[Any, tuple[str, Any]]) -> None:
    for name, function in functions.values():
        setattr(_time, name, function)
    program = vars(sys.modules["__main__"])
    for name, value in list(program.items()):
        if isinstance(value, (BuiltinFunctionType, FunctionType)) and value in functions:
            program[name] = functions[value][1]
