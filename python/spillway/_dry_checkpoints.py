# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of which there is only the beginning, in dry runs: the header of a safetensors file has all
types and shapes, and nobody reads the weights."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ["patch"]

_NO_SHAPES = 2  # exit status


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
            length = 8 + int.from_bytes(file.read(8), "little")
            if size < 8 or size < length:
                _end(f"{path}: has {size} bytes, of which the header alone takes {max(length, 8)}")
            file.seek(0)
            header = file.read(length)
        parts = json.loads(header[8:])
        ends = [part["data_offsets"][1] for name, part in parts.items() if name != "__metadata__"]
    except (OSError, ValueError, LookupError, TypeError, AttributeError):  # safetensors says what is wrong
        return None
    whole = length + max(ends, default=0)
    return (header, whole) if size < whole else None


def _end(what: str) -> None:
    print(f"spillway: {what}: a dry run needs the header, which has the shapes", file=sys.stderr, flush=True)
    raise SystemExit(_NO_SHAPES)
