# SPDX-License-Identifier: Apache-2.0
"""The C, C++ and CMake examples of the pages fit the headers and the package."""

from __future__ import annotations

import subprocess
import sysconfig
from pathlib import Path

import pytest
import torch
from page_examples import ROOT, Page, pages

TORCH = Path(torch.__path__[0]) / "include"
CUDA = Path(sysconfig.get_paths()["purelib"]) / "nvidia/cu13/include"
INCLUDED = [ROOT, ROOT / "include", TORCH, TORCH / "torch/csrc/api/include", CUDA]
COMPILERS = {"c": ["cc"], "cpp": ["c++", "-std=c++20"]}


def source(pages: list[Page], language: str) -> str:
    """One program of all blocks, because the headers take most of a compiler's time: what a page hides
    before a block, then the block as a function."""
    includes, rest = "", ""
    for page in pages:
        for block in page.of(language):
            name = f"example_{page.path.stem.replace('-', '_')}_{block.line}"
            parts = []
            for text in (block.setup, block.text):
                lines = text.splitlines()
                includes += "".join(f"{line}\n" for line in lines if line.startswith("#include"))
                parts.append("\n".join("" if line.startswith("#include") else line for line in lines))
            function = f'void {name}(void) {{\n#line {block.line} "{page.name}"\n{parts[1]}\n}}\n'
            around = "namespace {0} {{\n{1}\n{2}}}\n" if language == "cpp" else "{1}\n{2}"
            rest += around.format(f"of_{name}", parts[0], function)
    return includes + rest


@pytest.mark.parametrize("language", ["c", "cpp"])
def test_the_examples_compile(language: str, tmp_path: Path) -> None:
    program = tmp_path / f"examples.{language}"
    program.write_text(source(pages(), language))
    folders = [option for each in INCLUDED for option in ("-isystem", each)]
    done = subprocess.run(
        [*COMPILERS[language], "-fsyntax-only", "-Wall", "-Werror", *folders, program],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert "example_" in program.read_text()
    assert done.returncode == 0, done.stderr


def test_cmake_examples_are_those_of_the_program_that_is_built() -> None:
    """tests/frameworks/test_cpp_users.py builds it."""
    built = (ROOT / "examples/cpp/CMakeLists.txt").read_text(encoding="utf-8")
    blocks = [block for page in pages() for block in page.of("cmake")]
    assert blocks
    for block in blocks:
        for line in block.text.splitlines():
            command = line.partition("#")[0].strip().rstrip(")")
            assert command in built, f"examples/cpp/CMakeLists.txt has no {command}"
