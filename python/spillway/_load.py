# SPDX-License-Identifier: Apache-2.0
"""Finds the LibTorch layer that was built for the torch in this process."""

from __future__ import annotations

import functools
import importlib
import re
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import ModuleType

_NAME = re.compile(r"_glue_t(\d)(\d+)(\..*\bso)$")


def python_tag() -> str:
    """What the names of this interpreter's extension modules say: "cpython-311-x86_64-linux-gnu"."""
    return EXTENSION_SUFFIXES[0].strip(".").removesuffix(".so")


def _layers() -> list[re.Match[str]]:
    """The layers beside this file, for any interpreter."""
    found = (_NAME.fullmatch(file.name) for file in Path(__file__).parent.iterdir())
    return [name for name in found if name]


def fits_interpreter() -> bool:
    """Whether a layer was built for this Python, whatever its torch."""
    return any(name[3] in EXTENSION_SUFFIXES for name in _layers())


def built_for() -> dict[str, str]:
    """Module name by torch version ("2.11") of the layers that this interpreter can load."""
    layers = (name for name in _layers() if name[3] in EXTENSION_SUFFIXES)
    return {f"{name[1]}.{name[2]}": name[0].split(".")[0] for name in layers}


@functools.cache
def glue() -> ModuleType:
    """The LibTorch layer, loaded once.

    Raises ImportError where there is none for this torch: a layer built for another minor version would
    call the wrong functions.
    """
    import torch

    version = re.match(r"(\d+\.\d+)", torch.__version__)
    built = built_for()
    module = built.get(version[1] if version else "")
    if module is None:
        have = ", ".join(sorted(built)) or "no version"
        raise ImportError(
            f"this build of spillway is for torch {have}, but torch {torch.__version__} is installed: "
            f"build spillway again for it, or install a torch that it was built for"
        )
    return importlib.import_module(f"spillway.{module}")
