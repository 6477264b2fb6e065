# SPDX-License-Identifier: Apache-2.0
"""Finds the statistics pages of running processes, and removes those of killed ones.

A page is a file in /dev/shm that its process's user alone can read. The process removes it at its end. Pages
of killed processes are removed when pages are read next. Imports no torch.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from pathlib import Path

from spillway._process import has_ended, start_of

FOLDER = Path("/dev/shm")


def prefix(kind: str = "top") -> str:
    """How the names of this user's pages, or of other files of `kind`, begin. Contains the namespace that
    process numbers belong to."""
    try:
        namespace = Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        namespace = 0
    return f"spillway-{kind}-{os.getuid()}-{namespace}-"


def path_of(process: int) -> Path | None:
    """The page of a process of this user, made or not; None where it has ended or its state cannot be read,
    or the folder for pages does not exist."""
    begun = start_of(process)
    if begun is None or not FOLDER.is_dir():
        return None
    return FOLDER / f"{prefix()}{process}-{begun}"


def has_left(process: int) -> bool:
    """Whether a process that has ended left its page, as one that was killed does."""
    return any(FOLDER.glob(f"{prefix()}{process}-*"))


def is_private(path: Path) -> bool:
    """A plain file of this user that nothing else can read or write."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077


def remove_stale() -> None:
    """Removes this user's pages whose processes have certainly ended, of those whose numbers mean something
    here: containers may share the folder and not the numbers."""
    of_process = re.compile(re.escape(prefix()) + r"(\d+)-(\d+)")  # its number, and when it began
    with contextlib.suppress(OSError):
        for path in FOLDER.iterdir():
            name = of_process.fullmatch(path.name)
            if name is None or not is_private(path):
                continue
            if has_ended(int(name[1]), int(name[2])):
                with contextlib.suppress(OSError):
                    path.unlink()
