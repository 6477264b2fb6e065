# SPDX-License-Identifier: Apache-2.0
"""What a program measures itself in a dry run: its stopwatch goes by the modelled time."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

__all__ = ["start"]

_READ = 1e-6  # seconds that a reading takes: whoever waits for a time comes to an end
_FUNCTIONS = (BuiltinFunctionType, FunctionType, MethodType)
_REAL = {
    name: getattr(time, name) for name in ("perf_counter", "perf_counter_ns", "time", "time_ns", "sleep")
}


def start() -> None:
    """From now on `time.perf_counter`, `time.time` and their siblings in nanoseconds tell the host's time of
    the virtual clock, which stands still while Python computes, and `time.sleep` lets it go on. Also where
    the main program has taken them by name before.

    Threads that Python has made, and forked children, have the real time: they wait for real things. So has
    `time.monotonic` in all of them.
    """
    clock = _Clock()
    modelled: dict[str, Callable[..., Any]] = {"sleep": clock.sleep}
    for name in ("perf_counter", "time"):
        modelled[name] = clock.reading(name)
        modelled[f"{name}_ns"] = clock.reading_ns(f"{name}_ns")
    _change({_REAL[name]: (name, function) for name, function in modelled.items()})
    os.register_at_fork(
        after_in_child=lambda: _change({function: (name, _REAL[name]) for name, function in modelled.items()})
    )


def _change(functions: dict[Callable[..., Any], tuple[str, Callable[..., Any]]]) -> None:
    for name, function in functions.values():
        setattr(time, name, function)
    program = vars(sys.modules["__main__"])
    for name, value in list(program.items()):
        if isinstance(value, _FUNCTIONS) and value in functions:
            program[name] = functions[value][1]


class _Clock:
    """Seconds since it was made. Threads: safe, but of two readings at once one may cost nothing."""

    def __init__(self) -> None:
        self._now_ms = ctypes.CDLL(None).spillway_emulator_now_ms
        self._now_ms.restype = ctypes.c_double
        self._began_ms = self._now_ms()
        self._besides = 0.0  # readings, and sleep

    def now(self) -> float:
        self._besides += _READ
        return (self._now_ms() - self._began_ms) / 1e3 + self._besides

    def reading(self, name: str) -> Callable[[], float]:
        real = _REAL[name]
        began = real()
        return lambda: began + self.now() if _is_modelled() else real()

    def reading_ns(self, name: str) -> Callable[[], int]:
        real = _REAL[name]
        began = real()
        return lambda: began + round(self.now() * 1e9) if _is_modelled() else real()

    def sleep(self, seconds: float) -> None:
        _REAL["sleep"](seconds)
        if _is_modelled():
            self._besides += seconds


def _is_modelled() -> bool:
    """In the main thread, and in those that Python has not made, such as autograd's."""
    thread = threading.current_thread()
    return thread is threading.main_thread() or isinstance(thread, threading._DummyThread)
