# SPDX-License-Identifier: Apache-2.0
"""Calls of modules that are open, and those that were left without their hook."""

from __future__ import annotations

import sys
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Generic, TypeVar

from torch.nn import Module

__all__ = ["OpenCalls", "expect_global_hooks", "outermost_call"]

_Value = TypeVar("_Value")


def expect_global_hooks() -> None:
    """PyTorch warns of those that fire an extra time for a compiled module. Ours may: it is the module around
    a compiled one that has the name, so the extra call is the one that counts."""
    warnings.filterwarnings("ignore", r"Using `torch\.compile\(module\)` when there are global hooks")


class OpenCalls(threading.local, Generic[_Value]):
    """The calls of modules that are open on a thread, each with what belongs to it.

    PyTorch's hooks with ``always_call`` are called for an Exception, but not for a KeyboardInterrupt or
    another BaseException. Such a call ends here with the one around it, or when it is looked for
    (``end_left``).
    """

    def __init__(self, ended: Callable[[_Value], object]) -> None:
        """`ended` is called with the value of each call that ends, the inner ones first."""
        self._ended = ended
        self._calls: list[tuple[Module, _Value]] = []

    def begin(self, module: Module, value: _Value) -> None:
        self._calls.append((module, value))

    def end(self, module: Module) -> None:
        """Ends the innermost call of `module`, and those inside it. Does nothing where there is none."""
        if any(one is module for one, _ in self._calls):
            while self._end_last() is not module:
                pass

    def end_left(self, called: Module | None = None) -> None:
        """Ends the calls that this thread is not inside any more. With `called`, a module whose next call
        begins now: only where it has an open one, which is a recursion or was left."""
        if not self._calls or (called is not None and all(one is not called for one, _ in self._calls)):
            return
        inside = _calls_of(sys._getframe(1))
        inside[id(called)] -= 1
        while self._calls:
            last = self._calls[-1][0]
            if sum(one is last for one, _ in self._calls) <= inside[id(last)]:
                return
            self._end_last()

    @property
    def outermost(self) -> Module | None:
        return self._calls[0][0] if self._calls else None

    def _end_last(self) -> Module:
        module, value = self._calls.pop()
        self._ended(value)
        return module


def outermost_call() -> Module | None:
    """The module whose call this thread is in, and that is in no other one's."""
    called = list(_called(sys._getframe(1)))
    return called[-1] if called else None


def _calls_of(frame: FrameType | None) -> Counter[int]:
    """How many calls of each module, by its id(), this thread is in."""
    return Counter(id(module) for module in _called(frame))


def _called(frame: FrameType | None) -> Iterator[Module]:
    """The module of each call that this thread is in, the innermost first."""
    while frame is not None:
        if frame.f_code is Module._call_impl.__code__:
            yield frame.f_locals["self"]
        frame = frame.f_back
