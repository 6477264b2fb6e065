# SPDX-License-Identifier: Apache-2.0
"""Whether a process of this machine still runs. Imports no torch."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["has_ended", "start_of"]


def start_of(process: int) -> int | None:
    """The start time of a process, in the kernel's ticks since boot: with its number, it identifies one
    process. None if the process has ended or its state cannot be read, as without free file descriptors;
    ``has_ended`` distinguishes the two."""
    state = _state_of(process)
    return None if state is None or state[0] else state[1]


def has_ended(process: int, begun: int | None = None) -> bool:
    """Whether the process that had this number, and began then, has ended. True only with proof: False where
    its state cannot be read. Without `begun`, any running process of this number counts."""
    state = _state_of(process)
    if state is not None:
        return state[0] or (begun is not None and state[1] != begun)
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):  # another user's, or a number that no process has
        pass
    return False


def _state_of(process: int) -> tuple[bool, int] | None:
    """Whether it has ended, and when it began; None where that cannot be read."""
    try:
        text = Path(f"/proc/{process}/stat").read_bytes().decode("utf-8", "replace")
    except OSError:
        return None
    _, bracket, rest = text.rpartition(")")  # its name, in brackets, may contain anything
    fields = rest.split()
    if not bracket or len(fields) < 20:
        return None
    # A first thread that has ended is a zombie as long as others run.
    ended = fields[0] == "X" or (fields[0] == "Z" and int(fields[17]) <= 1)
    return ended, int(fields[19])
