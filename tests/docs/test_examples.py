# SPDX-License-Identifier: Apache-2.0
"""Every example of the tutorial and the guides runs, on the emulated GPU or as a dry run."""

from __future__ import annotations

import ast
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from page_examples import Page, files, pages

HERE = Path(__file__).parent
ALL = pages()
IN_PYTHON = [page for page in ALL if page.of("python")]
IN_SHELL = [page for page in ALL if page.of("bash")]
# What a reader has a GPU for is a dry run here: full-size models, two GPUs.
GPU = {
    "SPILLWAY_EMULATE_SHAPE_ONLY": "1",
    "SPILLWAY_EMULATE_MEMORY": "140GiB",
    "SPILLWAY_EMULATE_DEVICES": "2",
}
PROGRAMS = {"spillway": "-m spillway", "python": "", "torchrun": "-m torch.distributed.run"}


@pytest.fixture(scope="module")
def python_results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str | None]:
    """The outcome of each page's Python blocks: one process runs all pages."""
    folder = tmp_path_factory.mktemp("python")
    blocks = [(page.name, [(each.line, each.text) for each in page.of("python")]) for page in IN_PYTHON]
    (folder / "pages.json").write_text(json.dumps(blocks))
    done = subprocess.run(
        [sys.executable, HERE / "run_pages.py", "pages.json", "results.json"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert (folder / "results.json").exists(), done.stdout + done.stderr
    results: dict[str, str | None] = json.loads((folder / "results.json").read_text())
    return {page.name: results.get(page.name, f"the process ended: {done.stderr}") for page in IN_PYTHON}


@pytest.mark.parametrize("page", IN_PYTHON, ids=lambda page: page.name)
def test_python_examples_run(page: Page, python_results: dict[str, str | None]) -> None:
    assert python_results[page.name] is None, python_results[page.name]


@pytest.mark.parametrize("page", IN_SHELL, ids=lambda page: page.name)
def test_commands_run(page: Page, tmp_path: Path) -> None:
    for name, text in files().items():
        (tmp_path / name).write_text(text + "\n")
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, arguments in PROGRAMS.items():
        (programs / name).write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {arguments} "$@"\n')
        (programs / name).chmod(0o755)
    for block in page.of("bash"):
        for command in block.commands:
            done = subprocess.run(
                shlex.split(command),
                executable=programs / "spillway",
                cwd=tmp_path,
                env=_environment(command) | {"PATH": f"{programs}:{os.environ['PATH']}"},
                capture_output=True,
                text=True,
                check=False,
                timeout=600,
            )
            assert done.returncode == block.status, (
                f"{page.name}:{block.line}: {command}\n{done.stdout}\n{done.stderr}"
            )
            printed = done.stdout + done.stderr
            assert printed and block.prints in printed, f"{page.name}:{block.line}: {command}\n{printed}"


def _environment(command: str) -> dict[str, str]:
    if shlex.split(command)[1] == "run":
        return os.environ | GPU
    # These commands choose the emulated GPU themselves, or need none.
    return {
        name: value for name, value in os.environ.items() if not name.startswith(("SPILLWAY_", "LD_PRELOAD"))
    }


def test_commands_are_spillways_own() -> None:
    for page in IN_SHELL:
        for block in page.of("bash"):
            assert all(each.startswith("spillway ") for each in block.commands), f"{page.name}:{block.line}"


def test_every_python_block_is_run_or_says_why_not() -> None:
    commands = " ".join(each for page in IN_SHELL for block in page.of("bash") for each in block.commands)
    for page in ALL:
        for block in page.blocks:
            if block.language == "python":
                ast.parse(block.text)
                assert block.title is None or block.title in commands, f"{block.title} is run by no command"


def test_there_are_examples_of_both_kinds() -> None:
    assert len(IN_PYTHON) >= 6
    assert len(IN_SHELL) >= 5
