# SPDX-License-Identifier: Apache-2.0
"""Finds the LibTorch layer that was built for the torch in this process."""

from __future__ import annotations

import functools
import importlib
import re
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from spillway._torch_versions import NEWEST, OLDEST

if TYPE_CHECKING:
    import torch

    from spillway._glue import Glue

SUPPORTED = f"torch {OLDEST} to {NEWEST}"
REBUILD = "pip install --no-build-isolation ."

_NAME = re.compile(r"_glue_t(\d)(\d+)(\..*\bso)$")


def python_tag() -> str:
    """The tag in the names of this interpreter's extension modules: "cpython-311-x86_64-linux-gnu"."""
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


def _minor(version: str) -> tuple[int, ...]:
    """(2, 12) of "2.12.0+cu130"."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


def supported(version: str) -> bool:
    """Whether Spillway can be built for this torch."""
    return _minor(OLDEST) <= _minor(version) <= _minor(NEWEST)


def why_not(version: str) -> str:
    """Why Spillway cannot run on this torch, and what to do; empty if it can."""
    built = sorted(built_for(), key=_minor)
    if any(_minor(version) == _minor(each) for each in built):
        return ""
    have = f"for torch {', '.join(built)}" if built else "without any torch"
    wrong = f"torch {version}: Spillway was built {have}"
    if supported(version):
        return f"{wrong}. Build it for torch {version}: {REBUILD} ({SUPPORTED} are supported)."
    return f"{wrong}; {SUPPORTED} are supported. Install one of these, then build for it: {REBUILD}"


@functools.cache
def glue() -> Glue:
    """The LibTorch layer, loaded once.

    Raises ImportError if none was built for this torch: a layer built for another minor version would call
    the wrong functions.
    """
    import torch

    wrong = why_not(torch.__version__)
    if wrong:
        raise ImportError(wrong)
    minor = "{}.{}".format(*_minor(torch.__version__))
    loaded = cast("Glue", importlib.import_module(f"spillway.{built_for()[minor]}"))
    _let_tensors_swap(loaded)
    return loaded


def _let_tensors_swap(loaded: Glue) -> None:
    """PyTorch swaps no tensor that has a weak reference (`torch.utils.swap_tensors`)."""
    import torch.utils

    original: Any = torch.utils.swap_tensors

    @functools.wraps(original)
    def swap_tensors(t1: torch.Tensor, t2: torch.Tensor) -> None:
        loaded.forget_noted_tensors()
        original(t1, t2)

    torch.utils.swap_tensors = swap_tensors
