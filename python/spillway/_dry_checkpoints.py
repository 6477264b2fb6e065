# SPDX-License-Identifier: Apache-2.0
"""Checkpoints in dry runs: a truncated safetensors file is enough, because its header has all types and
shapes and nothing reads the weights. A file of torch.save must be complete: its shapes are at its end."""

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
_HEADER = "Download at least its header: a dry run reads the shapes there."
_SAFETENSORS = "Use the complete file, or a safetensors file with at least its header."


def patch(module: ModuleType) -> None:
    """Patches safetensors: files may be truncated after their headers."""
    original = module.safe_open

    class Opening(type):
        """The metaclass of a stand-in for `safe_open`, which cannot be derived from."""

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

    for scope in [module, sys.modules.get("safetensors.torch"), sys.modules["__main__"]]:
        for name, value in list(vars(scope).items()) if scope else ():
            if value is original:
                setattr(scope, name, safe_open)


def _whole(path: Path) -> tuple[bytes, int] | None:
    """The header of a file that lacks some of its weights, and the size of the complete file. Ends the
    program if the header is incomplete."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            begins = file.read(len(_LFS_POINTER))
            length = 8 + int.from_bytes(begins[:8], "little")
            if begins == _LFS_POINTER:
                _end(f"{path}: is a Git LFS pointer, not a checkpoint. {_HEADER}")
            if size < 8 or size < length:
                _end(f"{path}: has {size} bytes; its header alone needs {max(length, 8)}. {_HEADER}")
            file.seek(0)
            header = file.read(length)
        parts = json.loads(header[8:])
        ends = [part["data_offsets"][1] for name, part in parts.items() if name != "__metadata__"]
    except (OSError, ValueError, LookupError, TypeError, AttributeError):  # safetensors reports the error
        return None
    whole = length + max(ends, default=0)
    return (header, whole) if size < whole else None


def patch_load(torch: Any) -> None:
    """Patches torch.load: an incomplete file of torch.save ends the program."""
    original = torch.load

    @functools.wraps(original)
    def load(f: Any, *arguments: Any, **options: Any) -> Any:
        if isinstance(f, str | os.PathLike):
            _check_saved(Path(os.fsdecode(f)))
        return original(f, *arguments, **options)

    torch.load = torch.serialization.load = load


def _check_saved(path: Path) -> None:
    """Returns if the file is complete, or if PyTorch reports a better error."""
    try:
        with path.open("rb") as file:
            begins = file.read(len(_LFS_POINTER))
        cut = begins.startswith(_ZIP) and not zipfile.is_zipfile(path)
    except OSError:
        return
    if begins == _LFS_POINTER:
        _end(f"{path}: is a Git LFS pointer, not a checkpoint. {_SAFETENSORS}")
    if cut:
        _end(f"{path}: is truncated; torch.save stores the shapes at the end. {_SAFETENSORS}")


def _end(what: str) -> None:
    print(f"spillway: {what}", file=sys.stderr, flush=True)
    raise SystemExit(_NO_SHAPES)
