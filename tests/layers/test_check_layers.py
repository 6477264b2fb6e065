# SPDX-License-Identifier: Apache-2.0
"""The check of the include order finds what it is there to find."""

import subprocess
import sys
from pathlib import Path

import pytest

CHECK = Path(__file__).with_name("check_layers.py")


def check(root: Path, path: str, *includes: str) -> subprocess.CompletedProcess[str]:
    """Runs the check over a tree in which the file at `path` includes the given headers."""
    for header in ("allocator/base/a.h", "allocator/driver/a.h", "allocator/heap/a.h", "allocator/plan/a.h",
                   "emulator/emulator.h", "emulator/device/a.h", "torch_glue/a.h",
                   "torch_glue/saved_storage/a.h", "torch_glue/saved_tensors/a.h",
                   "torch_glue/recompute/a.h"):  # fmt: skip
        file = root / header
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("#pragma once\n")
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"#include {include}\n" for include in includes))
    return subprocess.run([sys.executable, CHECK, root], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("path", "include"),
    [
        ("allocator/heap/b.h", '"allocator/plan/a.h"'),  # to the right
        ("allocator/plan/b.h", '"allocator/driver/a.h"'),  # a pure stage and CUDA
        ("allocator/heap/b.h", "<cuda.h>"),  # not through the one entry point
        ("allocator/runtime/b.cpp", "<torch/extension.h>"),
        ("allocator/abi/b.cpp", '"torch_glue/a.h"'),
        ("interpose/b.cpp", '"torch_glue/a.h"'),
        ("torch_glue/b.cpp", '"interpose/b.h"'),
        ("torch_glue/b.cpp", '"emulator/emulator.h"'),
        ("torch_glue/saved_storage/b.cpp", '"torch_glue/saved_tensors/a.h"'),
        ("torch_glue/saved_tensors/b.cpp", '"torch_glue/recompute/a.h"'),
        ("emulator/b.cpp", '"allocator/driver/a.h"'),
        ("emulator/b.cpp", "<ATen/ATen.h>"),
        ("emulator/operators/b.cpp", '"emulator/device/a.h"'),
        ("tests/heap/b.cpp", '"emulator/device/a.h"'),
        ("allocator/heap/b.h", '"a.h"'),  # not a path from the root
    ],
)
def test_an_include_against_the_order_is_named(tmp_path: Path, path: str, include: str) -> None:
    result = check(tmp_path, path, include)
    assert result.returncode == 1
    assert f"{path}: {include.strip('<>').strip(chr(34))}: " in result.stdout


@pytest.mark.parametrize(
    ("path", "include"),
    [
        ("allocator/heap/b.h", '"allocator/base/a.h"'),
        ("allocator/heap/b.h", "<vector>"),
        ("allocator/driver/b.h", "<cuda.h>"),
        ("torch_glue/b.cpp", '"allocator/plan/a.h"'),
        ("torch_glue/b.cpp", "<torch/extension.h>"),
        ("torch_glue/recompute/b.cpp", '"torch_glue/saved_tensors/a.h"'),
        ("emulator/operators/b.cpp", "<ATen/ATen.h>"),
        ("emulator/operators/b.cpp", '"emulator/emulator.h"'),
        ("tests/heap/b.cpp", '"emulator/emulator.h"'),
    ],
)
def test_an_include_along_the_order_passes(tmp_path: Path, path: str, include: str) -> None:
    result = check(tmp_path, path, include)
    assert result.returncode == 0, result.stdout


def test_folders_that_include_each_other_are_named(tmp_path: Path) -> None:
    assert check(tmp_path, "torch_glue/pools/b.h", '"torch_glue/a.h"').returncode == 0
    (tmp_path / "torch_glue/a.h").write_text('#include "torch_glue/pools/b.h"\n')
    result = subprocess.run([sys.executable, CHECK, tmp_path], capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "torch_glue and torch_glue/pools include each other" in result.stdout
