# SPDX-License-Identifier: Apache-2.0
"""Reads facts about an interpreter and its torch without starting it, because an import takes seconds."""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path

from spillway._files import read_start


def torch_without_cuda() -> str | None:
    """The version of the torch that Python imports here, where it cannot use a GPU."""
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        return None
    try:
        text = (Path(found.origin).parent / "version.py").read_text()
    except OSError:
        return None
    if not re.search(r"^cuda\b.*=\s*None\s*$", text, re.MULTILINE):
        return None
    version = re.search(r"^__version__\s*=\s*['\"]([^'\"]+)", text, re.MULTILINE)
    return version[1] if version else "of an unknown version"


def is_python(program: str) -> bool:
    """The interpreter, or a script that names it in its first line."""
    if os.path.basename(program).startswith("python"):
        return True
    try:
        first = read_start(program, 256).split(b"\n", 1)[0]
    except OSError:
        return False
    return first.startswith(b"#!") and b"python" in first
