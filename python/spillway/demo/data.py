# SPDX-License-Identifier: Apache-2.0
"""Text as bytes: what the demonstration trains on."""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path

from spillway._files import reason_of

LEAST = 4096  # bytes of text; a few times the longest context
MOST = 4 << 20


def standard_library(most: int = MOST) -> bytes:
    """The sources of Python's standard library, in the order of their paths, cut at `most` bytes."""
    root = Path(sysconfig.get_path("stdlib"))
    paths = sorted(
        (path for path in root.rglob("*.py") if "site-packages" not in path.parts),
        key=lambda path: path.relative_to(root).as_posix(),
    )
    text = bytearray()
    for path in paths:
        if path.is_file():
            text += path.read_bytes()
        if len(text) >= most:
            break
    return bytes(text[:most])


def problem(path: Path) -> str | None:
    """Why `path` cannot be used as training data, as one line for the user; None if it can."""
    allowed = f"expected a readable text file of at least {LEAST} bytes"
    if not os.path.exists(path):
        return f"--data={path}: {allowed}, but it does not exist"
    if not os.path.isfile(path):
        return f"--data={path}: {allowed}, not a folder or device"
    try:
        with path.open("rb") as file:
            size = len(file.read(LEAST))
    except OSError as error:
        return f"--data={path}: cannot be read ({reason_of(error)}). Name another file."
    return None if size >= LEAST else f"--data={path}: {allowed}, not {size}"


def load(path: Path | None) -> bytes:
    """The bytes of `path`, or the standard library's sources. Requires: problem(path) is None."""
    if path is None:
        return standard_library()
    with path.open("rb") as file:
        return file.read(MOST)
