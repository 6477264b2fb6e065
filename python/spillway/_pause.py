# SPDX-License-Identifier: Apache-2.0
"""Pauses device memory that is not in use, and resumes it at the same addresses."""

from __future__ import annotations

import functools
import threading
from contextlib import ContextDecorator
from typing import Literal, overload

from spillway._arguments import flag
from spillway._load import glue
from spillway._scope import Opening, Scope

__all__ = ["Pausing", "allow_eviction", "forbid_eviction", "pause", "resident", "resume"]


def _named(tag: str) -> str:
    if not isinstance(tag, str):
        raise TypeError(f"tag must be a string, not {tag!r}")
    return tag


class Pausing:
    """A pause that is in progress. :meth:`wait` returns its result, and may be called repeatedly."""

    def __init__(self, tag: str, discard: bool) -> None:
        self.tag = tag
        self._report: dict[str, int] | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(discard,), name="spillway-pause")
        self._thread.start()

    def _run(self, discard: bool) -> None:
        try:
            self._report = glue().pause_all([(self.tag, discard)])
        except BaseException as error:
            self._error = error

    def done(self) -> bool:
        """Whether the pause is complete, so that :meth:`wait` would not block."""
        return not self._thread.is_alive()

    def wait(self) -> dict[str, int]:
        """Wait for the pause; return its result or raise its error."""
        self._thread.join()
        with _lock:
            if self in _going_on:
                _going_on.remove(self)
        if self._error is not None:
            raise self._error
        assert self._report is not None
        return self._report


_lock = threading.Lock()
_going_on: list[Pausing] = []


def join_all() -> None:
    """Waits for every pause in progress, then raises the first error, if any."""
    with _lock:
        all_of_them = list(_going_on)
    errors = []
    for each in all_of_them:
        try:
            each.wait()
        except Exception as error:
            errors.append(error)
    if errors:
        raise errors[0]


@overload
def pause(tag: str, *, discard: bool = False, wait: Literal[True] = True) -> dict[str, int]: ...
@overload
def pause(tag: str, *, discard: bool = False, wait: Literal[False]) -> Pausing: ...
def pause(tag: str, *, discard: bool = False, wait: bool = True) -> dict[str, int] | Pausing:
    """Copy all memory under `tag` to the host, and release its device memory.

    Tensors, and CUDA graphs captured with them, keep their addresses; only allocated memory is copied. Do not
    use the tensors until :func:`resume`: a kernel that accesses one faults. Memory that is allocated under
    `tag` later is not paused.

    Waits for the work that is queued on the tensors' streams, and for the copies. As before a tensor is
    freed, other streams that use it must be recorded (``record_stream``) or synchronized.

    Args:
        tag: a tag, which includes the tags inside it (``"optimizer"``), or a pattern of tags
            (``"activation/layers.*"``); ``"*"`` matches all tagged memory.
        discard: do not copy the contents; they are unspecified after :func:`resume`.
        wait: with False, return a :class:`Pausing` immediately, while the copies proceed. Its ``wait()``
            returns the result or raises the errors below. So does the next :func:`resume` or
            :class:`~spillway.memory.resident`, which waits for it. The tensors must not be used from this
            call on.

    Returns:
        The number of paused ``blocks``, their ``bytes``, ``copied_bytes``, and ``released_bytes``. Physical
        memory that is shared with other blocks is not released.

    Raises:
        TypeError: `tag` is not a string, or a flag is not a bool.
        ValueError: `tag` is empty, or no memory has this tag.
        RuntimeError: all of it is paused already, or the driver failed.
        MemoryError: the host has no memory for the contents. On any error nothing has changed.
    """
    what = (_named(tag), flag("discard", discard))
    if flag("wait", wait):
        return glue().pause_all([what])
    if not tag:
        glue().pause_all([what])  # refuses it
    going_on = Pausing(*what)
    with _lock:
        _going_on.append(going_on)
    return going_on


def resume(tag: str) -> dict[str, int]:
    """Fetch all paused memory under `tag`, with its contents, to the same addresses.

    All streams, threads and graphs can use it afterwards.

    Returns:
        The number of resumed ``blocks``, their ``bytes`` and ``copied_bytes``; ``released_bytes`` is 0.

    Raises:
        ValueError: no memory has this tag.
        RuntimeError: none of it is paused, or the driver failed.
        torch.OutOfMemoryError: the device has too little memory; the message lists the memory of each tag. On
            any error nothing has changed.
    """
    name = _named(tag)
    join_all()
    return glue().resume_all([name])


def allow_eviction(tag: str) -> None:
    """Allow Spillway to pause memory under `tag` when the device runs out of memory.

    The caller must fetch that memory before use, with :func:`resume` or inside
    :class:`~spillway.memory.resident`::

        spillway.memory.allow_eviction("optimizer")
        ...
        with spillway.memory.resident("optimizer"):
            optimizer.step()

    Raises:
        ValueError: `tag` is empty.
    """
    glue().allow_eviction(_named(tag))


def forbid_eviction(tag: str) -> None:
    """Undo one :func:`allow_eviction` of `tag`. Paused memory remains paused until it is resumed.

    Raises:
        RuntimeError: eviction of `tag` was not allowed.
    """
    glue().forbid_eviction(_named(tag))


# In lower case, as torch.no_grad: it is used like a function.
class resident(Scope, ContextDecorator):
    """A region in which all memory under `tag` is resident on the device, even if its eviction is allowed.

    Entering it fetches paused memory, as :func:`resume` does, with the same errors.
    """

    def __init__(self, tag: str) -> None:
        self.tag = _named(tag)

    def _opening(self) -> Opening:
        join_all()
        enter, leave = glue().enter_resident, glue().leave_resident
        return functools.partial(enter, self.tag), functools.partial(leave, self.tag)
