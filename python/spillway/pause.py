# SPDX-License-Identifier: Apache-2.0
"""Memory that goes while nobody needs it, and comes back at the same addresses."""

from __future__ import annotations

from contextlib import ContextDecorator

from spillway._load import glue

__all__ = ["allow_eviction", "forbid_eviction", "pause", "resident", "resume"]


def _named(tag: str) -> str:
    if not isinstance(tag, str):
        raise TypeError(f"tag must be a string, not {tag!r}")
    return tag


def pause(tag: str, *, discard: bool = False) -> dict[str, int]:
    """Give the device memory of everything under `tag` back, and keep its contents in host memory.

    The tensors stay, at the same addresses, and so do CUDA graphs captured with them; only what is live is
    copied, as many bytes as were asked for. Nothing may use them until :func:`resume`: a kernel that touches
    one faults. What is allocated under `tag` later is not paused.

    Waits for the work that the tensors' streams have been given, and for the copies. As before freeing a
    tensor, a stream that uses one besides its own must be known (``record_stream``) or be waited for.

    Args:
        tag: a tag, which stands for those inside it too (``"optimizer"``), or a pattern of tags
            (``"activation/layers.*"``).
        discard: the contents need not come back: nothing is copied, and they are unspecified afterwards.

    Returns:
        ``blocks`` that were paused and their ``bytes``, ``copied_bytes``, and ``given_back_bytes``, which
        the device has to give again: what shares physical memory with something else stays.

    Raises:
        ValueError: no memory is under `tag`.
        RuntimeError: all of it is paused already, or the driver failed.
        MemoryError: the host has no memory for the contents. In each case nothing has changed.
    """
    report: dict[str, int] = glue().pause_all([(_named(tag), bool(discard))])
    return report


def resume(tag: str) -> dict[str, int]:
    """Bring everything paused under `tag` back, with its contents, at its addresses.

    Any stream, thread and graph may use it afterwards.

    Returns:
        ``blocks``, ``bytes`` and ``copied_bytes``.

    Raises:
        ValueError: no memory is under `tag`.
        RuntimeError: none of it is paused, or the driver failed.
        torch.OutOfMemoryError: the device has no memory for it. In each case nothing has changed.
    """
    report: dict[str, int] = glue().resume_all([_named(tag)])
    return report


def allow_eviction(tag: str) -> None:
    """Where the device runs out of memory, let Spillway pause what is under `tag`.

    You promise that whoever uses that memory brings it back before, with :func:`resume` or inside
    :class:`resident`::

        spillway.allow_eviction("optimizer")
        ...
        with spillway.resident("optimizer"):
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


class resident(ContextDecorator):  # noqa: N801: reads as a verb, like torch.no_grad
    """A region in which everything under `tag` is on the device and stays there, eviction allowed or not.

    What is paused comes back at the entry, as with :func:`resume`, whose errors it raises.
    """

    def __init__(self, tag: str) -> None:
        self.tag = _named(tag)

    def __enter__(self) -> resident:
        glue().enter_resident(self.tag)
        return self

    def __exit__(self, *_: object) -> None:
        glue().leave_resident(self.tag)
