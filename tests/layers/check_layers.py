# SPDX-License-Identifier: Apache-2.0
"""Fails on an include that the order of the folders does not allow: check_layers.py ROOT."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

# A folder may include itself and what stands to its left.
ORDER = (
    "base",
    "driver",
    "heap",
    "sharing",
    "tag",
    "lifetime",
    "plan",
    "transfer",
    "residency",
    "device",
    "step",
    "runtime",
    "abi",
)
# These call no CUDA and replay from files, so of what stands to their left they see only this.
PURE = ("base", "tag", "lifetime", "plan")
ALLOCATOR = tuple(f"allocator/{stage}" for stage in ORDER)

# What each folder outside the allocator may include of the project, besides itself. The longest match counts.
SEES = {
    "emulator": ("allocator/base",),
    "emulator/operators": ("allocator/base", "emulator/emulator.h"),
    "hooks": ("allocator/base", "allocator/driver", "allocator/lifetime"),
    "interpose": ("allocator/base", "allocator/abi", "hooks"),
    "torch_glue": (*ALLOCATOR, "hooks"),
    # Storages know of no saved tensor, and saved tensors of no rule.
    "torch_glue/saved_storage": (*ALLOCATOR, *(f"torch_glue/{each}" for each in ("base", "pluggable"))),
    "torch_glue/saved_tensors": (
        *ALLOCATOR,
        *(f"torch_glue/{each}" for each in ("base", "saved_storage", "tags")),
    ),
    "torch_glue/recompute": ("torch_glue/base", "torch_glue/saved_tensors"),
    "examples": ("allocator/abi", "torch_glue"),
    "tests": (*ALLOCATOR, "hooks", "interpose", "torch_glue", "tests", "bench", "emulator/emulator.h"),
    "tests/emulator": (*ALLOCATOR, "tests", "emulator"),
    "bench": (*ALLOCATOR, "hooks", "interpose", "torch_glue", "tests", "emulator/emulator.h"),
}

# Headers from outside, and who may include them; everybody else goes through a folder that does.
CUDA_HEADER = re.compile(r"(cuda|cupti|nvrtc|cublas|nvtx).*|driver_types\.h|vector_types\.h")
CUDA = ("allocator/driver", "emulator", "interpose", "hooks", "tests", "bench")
TORCH_HEADER = re.compile(r"(torch|ATen|c10|caffe2|pybind11)/.*|Python\.h")
TORCH = (
    "torch_glue",
    "emulator/operators",
    "tests/torch_glue",
    "tests/emulator_operators",
    "tests/frameworks",
    "examples",
    "bench",
)

# Folders of one part that include each other. No others may: what both need goes into a third.
MUTUAL = {
    # an operator's rules and costs are registered by family
    frozenset({"emulator/operators", "emulator/operators/shapes"}),
    frozenset({"emulator/operators", "emulator/operators/bodies"}),
    # the checker's clocks belong to threads, and threads report to the checker
    frozenset({"emulator/device", "emulator/threads"}),
    frozenset({"emulator", "emulator/device"}),  # emulator.h is the interface for tests
}

SOURCES = (".h", ".hpp", ".inc", ".c", ".cc", ".cpp", ".cu", ".cuh")
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]', re.MULTILINE)


def within(path: str, folders: tuple[str, ...]) -> bool:
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)


def allowed_folders(path: str) -> tuple[str, ...]:
    """The folders that the file at `path` may include from."""
    if path.startswith("allocator/"):
        stage = path.split("/")[1]
        left = ORDER[: ORDER.index(stage) + 1] if stage in ORDER else ()
        return tuple(f"allocator/{each}" for each in left if stage not in PURE or each in PURE)
    owner = max((folder for folder in SEES if within(path, (folder,))), key=len, default=None)
    return (owner, *SEES[owner]) if owner else ()


def problem(root: Path, path: str, kind: str, header: str) -> str | None:
    """Why the file at `path` may not include `header`, or None."""
    if CUDA_HEADER.fullmatch(header) and not within(path, CUDA) and not within(path, TORCH):
        return f"CUDA headers are for {', '.join(CUDA)}"
    if TORCH_HEADER.fullmatch(header):
        return None if within(path, TORCH) else f"torch headers are for {', '.join(TORCH)}"
    if kind == "<":
        return None
    if not (root / header).is_file():
        return "not a path from the root of the project"
    if not within(header, allowed_folders(path)):
        return f"this folder may include {', '.join(allowed_folders(path)) or 'nothing of the project'}"
    return None


def problems(root: Path) -> Iterator[str]:
    for folder in ("allocator", *SEES):
        # A folder inside another is walked with it.
        if any(other != folder and within(folder, (other,)) for other in SEES):
            continue
        for file in sorted((root / folder).rglob("*")):
            path = file.relative_to(root).as_posix()
            if file.suffix not in SOURCES:
                continue
            for found in INCLUDE.finditer(file.read_text(encoding="utf-8")):
                why = problem(root, path, found[1], found[2])
                if why:
                    yield f"{path}: {found[2]}: {why}"


def mutual_includes(root: Path) -> Iterator[str]:
    """Pairs of folders that include each other, beside MUTUAL."""
    includes: dict[tuple[str, str], str] = {}
    for folder in ("allocator", *SEES):
        for file in sorted((root / folder).rglob("*")):
            if file.suffix not in SOURCES:
                continue
            here = file.parent.relative_to(root).as_posix()
            for _, header in INCLUDE.findall(file.read_text(encoding="utf-8")):
                there = Path(header).parent.as_posix()
                if there != here and (root / header).is_file():
                    includes.setdefault((here, there), f"{file.relative_to(root).as_posix()}: {header}")
    for (here, there), where in includes.items():
        back = includes.get((there, here))
        if back and here < there and frozenset({here, there}) not in MUTUAL:
            yield f"{here} and {there} include each other: {where}; {back}"


def main(arguments: list[str]) -> int:
    if len(arguments) != 1 or not Path(arguments[0], "allocator").is_dir():
        print("usage: check_layers.py ROOT, where ROOT holds the folder allocator", file=sys.stderr)
        return 2
    root = Path(arguments[0])
    found = [*problems(root), *mutual_includes(root)]
    print("\n".join(found) if found else "every include follows the order")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
