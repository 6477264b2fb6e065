# SPDX-License-Identifier: Apache-2.0
"""Calls of modules that are open, and those that were left without their hook."""

from __future__ import annotations

import sys
import threading
import warnings
from collections import Counter
from collections.abc import Iterator
from types import FrameType
from typing import Any

from torch.nn import Module

from spillway._load import glue
from spillway._scope import Opening

__all__ = ["OpenCalls", "end_all_left", "expect_global_hooks", "outermost_call"]


def expect_global_hooks() -> None:
    """PyTorch warns of those that fire an extra time for a compiled module. Ours may: it is the module around
    a compiled one that has the name, so the extra call is the one that counts."""
    warnings.filterwarnings("ignore", r"Using `torch\.compile\(module\)` when there are global hooks")


class OpenCalls:
    """The calls of modules that are open on a thread, each with what was opened for it.

    PyTorch's hooks with ``always_call`` are called for an Exception, but not for a KeyboardInterrupt or
    another BaseException. Such a call ends here with the one around it, or when it is looked for
    (``end_left``, ``end_all_left``). Ctrl-C inside ``begin`` or ``end`` leaves a call that those find, too:
    it is remembered before anything is opened for it, and forgotten after that is closed.
    """

    def __init__(self) -> None:
        self._of_thread = threading.local()
        _all.append(self)

    @property
    def _calls(self) -> list[tuple[Module, Any]]:
        try:
            return self._of_thread.calls  # type: ignore[no-any-return]
        except AttributeError:
            self._of_thread.calls = []
            return self._of_thread.calls  # type: ignore[no-any-return]

    def begin(self, module: Module, opening: Opening | None = None) -> None:
        """A call of `module` begins, for which this is opened."""
        opened = glue().Opened()
        self._calls.append((module, opened))
        if opening is not None:
            opened.open(*opening)

    def end(self, module: Module) -> None:
        """Ends the innermost call of `module`, and those inside it. Does nothing where there is none."""
        if self.is_open(module):
            while self._end_last() is not module:
                pass

    def is_open(self, module: Module | None = None) -> bool:
        """Whether a call of `module`, or of any module, is open on this thread."""
        return any(module is None or one is module for one, _ in self._calls)

    def end_left(self, called: Module | None = None) -> None:
        """Ends the calls that this thread is not inside any more. `called`: a module whose next call begins
        now, which does not count as one that it is inside."""
        if not self._calls:
            return
        try:
            inside = _calls_of(sys._getframe(1))
        except _CompiledCallError:
            return
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
        module, opened = self._calls[-1]
        opened.close()
        self._calls.pop()
        return module


_all: list[OpenCalls] = []


def end_all_left() -> None:
    """Ends all calls that this thread is not inside any more."""
    for each in list(_all):  # others may be made meanwhile
        each.end_left()


def outermost_call() -> Module | None:
    """The module whose call this thread is in, and that is in no other one's."""
    called = list(_called(sys._getframe(1)))
    return called[-1] if called else None


class _CompiledCallError(Exception):
    """A call of a module runs as torch.compile has rewritten it, and does not name its module."""


def _calls_of(frame: FrameType | None) -> Counter[int]:
    """How many calls of each module, by its id(), this thread is in."""
    return Counter(id(module) for module in _called(frame, strict=True))


def _called(frame: FrameType | None, strict: bool = False) -> Iterator[Module]:
    """The module of each call that this thread is in, the innermost first."""
    while frame is not None:
        if frame.f_code is Module._call_impl.__code__:
            yield frame.f_locals["self"]
        elif strict and frame.f_code.co_name.removeprefix("torch_dynamo_resume_in_").startswith("_call_impl"):
            raise _CompiledCallError
        frame = frame.f_back
