# SPDX-License-Identifier: Apache-2.0
"""Temporary folders of launchers. Imports no torch."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from spillway._process import has_ended, start_of
from spillway.top import pages

__all__ = ["scratch_folder"]

_KIND = "run"


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder of this process that its user alone can enter, removed at the end. Folders of launchers that
    were killed are removed first."""
    _remove_stale()
    process = os.getpid()
    prefix = f"{pages.prefix(_KIND)}{process}-{start_of(process)}-"
    with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as name:
        yield Path(name)


def _remove_stale() -> None:
    of_process = re.compile(re.escape(pages.prefix(_KIND)) + r"(\d{1,10})-(\d{1,20})-\w+")
    with contextlib.suppress(OSError):
        for path in Path(tempfile.gettempdir()).iterdir():
            name = of_process.fullmatch(path.name)
            if name is not None and _is_private(path) and has_ended(int(name[1]), int(name[2])):
                shutil.rmtree(path, ignore_errors=True)


def _is_private(path: Path) -> bool:
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
