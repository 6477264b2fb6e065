# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of which there is only the beginning, in dry runs: the header of a safetensors file has all
types and shapes, and nothing reads the weights. A file of torch.save has them at its end."""

from __future__ import annotations

import functools
import json
import os
import sys
import tempfile
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ["patch", "patch_load"]

_NO_SHAPES = 2  # exit status
_LFS_POINTER = b"version https://git-lfs.github.com/spec/"
_ZIP = b"PK\x03\x04"
_HEADER = "a dry run needs the header, which has the shapes"
_SAFETENSORS = "a dry run needs all of it, or the header of a safetensors file"


def patch(module: ModuleType) -> None:
    """Of safetensors: files may end behind their headers."""
    original = module.safe_open

    class Opening(type):
        """Of a class that cannot be derived from."""

        def __call__(cls, filename: str | os.PathLike[str], *arguments: Any, **options: Any) -> Any:
            whole = _whole(Path(os.fsdecode(filename)))
            if whole is None:
                return original(filename, *arguments, **options)
            header, size = whole
            with tempfile.NamedTemporaryFile(prefix="spillway-", suffix=".safetensors") as file:
                file.write(header)
                file.truncate(size)  # a hole, that stays mapped
                file.flush()
                return original(file.name, *arguments, **options)

        def __instancecheck__(cls, each: object) -> bool:
            return isinstance(each, original)

    class safe_open(metaclass=Opening):
        pass

    for place in [module, sys.modules.get("safetensors.torch"), sys.modules["__main__"]]:
        for name, value in list(vars(place).items()) if place else ():
            if value is original:
                setattr(place, name, safe_open)


def _whole(path: Path) -> tuple[bytes, int] | None:
    """The header of a file that lacks some of its weights, and the size that it would have. Ends the program
    where the header is not all there."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            begins = file.read(len(_LFS_POINTER))
            length = 8 + int.from_bytes(begins[:8], "little")
            if begins == _LFS_POINTER:
                _end(f"{path}: is a pointer of Git LFS, and no checkpoint: {_HEADER}")
            if size < 8 or size < length:
                _end(f"{path}: has {size} bytes, of which the header alone takes {max(length, 8)}: {_HEADER}")
            file.seek(0)
            header = file.read(length)
        parts = json.loads(header[8:])
        ends = [part["data_offsets"][1] for name, part in parts.items() if name != "__metadata__"]
    except (OSError, ValueError, LookupError, TypeError, AttributeError):  # safetensors says what is wrong
        return None
    whole = length + max(ends, default=0)
    return (header, whole) if size < whole else None


def patch_load(torch: Any) -> None:
    """Of torch: a file of torch.save that is not whole ends the program."""
    original = torch.load

    @functools.wraps(original)
    def load(f: Any, *arguments: Any, **options: Any) -> Any:
        if isinstance(f, str | os.PathLike):
            _check_saved(Path(os.fsdecode(f)))
        return original(f, *arguments, **options)

    torch.load = torch.serialization.load = load


def _check_saved(path: Path) -> None:
    """Returns where PyTorch is to say what is wrong, if anything is."""
    try:
        with path.open("rb") as file:
            begins = file.read(len(_LFS_POINTER))
        cut = begins.startswith(_ZIP) and not zipfile.is_zipfile(path)
    except OSError:
        return
    if begins == _LFS_POINTER:
        _end(f"{path}: is a pointer of Git LFS, and no checkpoint: {_SAFETENSORS}")
    if cut:
        _end(f"{path}: ends too early, and a file of torch.save has its shapes at the end: {_SAFETENSORS}")


def _end(what: str) -> None:
    print(f"spillway: {what}", file=sys.stderr, flush=True)
    raise SystemExit(_NO_SHAPES)
