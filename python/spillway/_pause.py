# SPDX-License-Identifier: Apache-2.0
"""Memory that goes while nothing needs it, and is fetched at the same addresses."""

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
    """A pause that goes on: :meth:`wait` gives what it came to, as often as it is asked."""

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
        """Whether :meth:`wait` would return at once."""
        return not self._thread.is_alive()

    def wait(self) -> dict[str, int]:
        """Return the pause's report, or raise its error, once it is over."""
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
    """Waits for every pause that goes on. Errors: the first one's, once all are over."""
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
    """Give the device memory of everything under `tag` back, and keep its contents in host memory.

    The tensors stay, at the same addresses, and so do CUDA graphs captured with them; only what is live is
    copied, as many bytes as were asked for. Nothing may use them until :func:`resume`: a kernel that touches
    one faults. What is allocated under `tag` later is not paused.

    Waits for the work that the tensors' streams have been given, and for the copies. As before freeing a
    tensor, a stream that uses one besides its own must be known (``record_stream``) or be waited for.

    Args:
        tag: a tag, which stands for those inside it too (``"optimizer"``), or a pattern of tags
            (``"activation/layers.*"``); ``"*"`` is everything that has a tag.
        discard: the contents need not be fetched: nothing is copied, and they are unspecified afterwards.
        wait: False returns at once, and the copies go on beside the program: a :class:`Pausing`, whose
            ``wait()`` gives the report or raises the errors below, as does the next :func:`resume` or
            :class:`~spillway.memory.resident` of anything, which joins it. From the call on nothing may use
            the tensors.

    Returns:
        ``blocks`` that were paused and their ``bytes``, ``copied_bytes``, and ``released_bytes``, which
        the device has to give again: what shares physical memory with something else stays.

    Raises:
        TypeError: `tag` is no string, or a flag no bool.
        ValueError: `tag` is empty, or no memory is under it.
        RuntimeError: all of it is paused already, or the driver failed.
        MemoryError: the host has no memory for the contents. In each case nothing has changed.
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
    """Bring everything paused under `tag` back, with its contents, at its addresses.

    Any stream, thread and graph may use it afterwards.

    Returns:
        ``blocks``, ``bytes`` and ``copied_bytes``.

    Raises:
        ValueError: no memory is under `tag`.
        RuntimeError: none of it is paused, or the driver failed.
        torch.OutOfMemoryError: the device has no memory for it; its text says who holds what. In each case
            nothing has changed.
    """
    name = _named(tag)
    join_all()
    return glue().resume_all([name])


def allow_eviction(tag: str) -> None:
    """Where the device runs out of memory, let Spillway pause what is under `tag`.

    You promise that the code that uses that memory fetches it before, with :func:`resume` or inside
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
    """Take one :func:`allow_eviction` of `tag` back. What is paused stays so until it is resumed.

    Raises:
        RuntimeError: it was not allowed.
    """
    glue().forbid_eviction(_named(tag))


# In lower case, as torch.no_grad: it is used like a function.
class resident(Scope, ContextDecorator):
    """A region in which everything under `tag` is on the device and stays there, eviction allowed or not.

    What is paused is fetched at the entry, as with :func:`resume`, whose errors it raises.
    """

    def __init__(self, tag: str) -> None:
        self.tag = _named(tag)

    def _opening(self) -> Opening:
        join_all()
        enter, leave = glue().enter_resident, glue().leave_resident
        return functools.partial(enter, self.tag), functools.partial(leave, self.tag)
