# SPDX-License-Identifier: Apache-2.0
"""Every example of the pages runs, on the emulated GPU or as a dry run."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from launched import clean_environment
from page_examples import DOCS, LANGUAGES, PAGES, ROOT, Block, Page, files, pages, read

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
NEEDS_GPU = re.compile(r"(.*\bspillway (run|env)|SPILLWAY_\w+=\S+ python) ")
PROGRAMS = {"spillway": "-m spillway", "python": "", "torchrun": "-m torch.distributed.run"}


@pytest.fixture(scope="module")
def python_results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str | None]:
    """The outcome of each page's Python blocks: one process runs all pages."""
    folder = tmp_path_factory.mktemp("python")
    blocks = [
        (page.name, [(each.line, each.text, each.prints) for each in page.of("python")]) for page in IN_PYTHON
    ]
    (folder / "pages.json").write_text(json.dumps(blocks))
    done = subprocess.run(
        [sys.executable, HERE / "run_pages.py", "pages.json", "results.json"],
        cwd=folder,
        env=os.environ | {"SPILLWAY_EMULATE_MEMORY": GPU["SPILLWAY_EMULATE_MEMORY"]},
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


@dataclass
class Shell:
    """A folder with the files that pages show. A command that several pages have runs once."""

    folder: Path
    done: dict[tuple[str, ...], subprocess.CompletedProcess[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        programs = self.folder / "bin"
        programs.mkdir()
        for name, arguments in PROGRAMS.items():
            (programs / name).write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {arguments} "$@"\n')
            (programs / name).chmod(0o755)

    def run(self, command: str, block: Block) -> subprocess.CompletedProcess[str]:
        key = (command, *block.files.values())
        if key not in self.done:
            for name, text in (files() | block.files).items():
                (self.folder / name).write_text(text + "\n")
            self.done[key] = subprocess.run(
                ["bash", "-c", command],
                cwd=self.folder,
                env=_environment(command) | {"PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}"},
                capture_output=True,
                text=True,
                check=False,
                timeout=600,
            )
        return self.done[key]


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    return Shell(tmp_path_factory.mktemp("shell"))


@pytest.mark.parametrize("page", IN_SHELL, ids=lambda page: page.name)
def test_commands_run(page: Page, shell: Shell) -> None:
    for block in page.of("bash"):
        printed = ""
        for command in block.commands:
            done = shell.run(command, block)
            output = done.stdout + done.stderr
            status = block.status if command == block.commands[-1] else 0
            assert done.returncode == status, f"{page.name}:{block.line}: {command}\n{output}"
            assert output, f"{page.name}:{block.line}: {command} prints nothing"
            printed += output
        for text in block.prints:
            assert text in printed, f"{page.name}:{block.line} prints, without {text!r}:\n{printed}"


def _environment(command: str) -> dict[str, str]:
    if NEEDS_GPU.match(command):
        return os.environ | GPU
    # These commands choose the emulated GPU themselves, or need none.
    return clean_environment()


def test_commands_that_run_are_spillways_own() -> None:
    for page in IN_SHELL:
        for block in page.of("bash"):
            for each in block.commands:
                assert each.startswith("spillway ") or NEEDS_GPU.match(each), (
                    f"{page.name}:{block.line}: {each}"
                )


def test_few_blocks_are_not_run_and_name_files_that_exist() -> None:
    left_out = [(page, block) for page in ALL for block in page.blocks if block.not_run]
    assert len(left_out) <= 8, [f"{page.name}:{block.line}: {block.not_run}" for page, block in left_out]
    for page, block in left_out:
        assert block.language == "bash", f"{page.name}:{block.line}"
        for name in re.findall(r"\bscripts/\w+", block.text):
            assert (ROOT / name).exists(), f"{page.name}:{block.line}: there is no {name}"


def test_every_python_block_is_run_or_states_why_not() -> None:
    commands = " ".join(each for page in IN_SHELL for block in page.of("bash") for each in block.commands)
    for page in ALL:
        for block in page.blocks:
            if block.language == "python":
                ast.parse(block.text)
                assert block.title is None or block.title in commands, f"{block.title} is run by no command"


def test_every_page_is_read_and_every_language_has_a_test() -> None:
    assert {path for path in PAGES if DOCS in path.parents} == set(DOCS.rglob("*.md"))
    assert len(IN_PYTHON) >= 10
    assert len(IN_SHELL) >= 10
    for language, test in LANGUAGES.items():
        assert any(block.language == language for page in ALL for block in page.blocks), language
        assert test is None or f'"{language}"' in (HERE / test).read_text(encoding="utf-8"), test


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("```\nspillway doctor\n```", "must name its language"),
        ("```fortran\nend\n```", "no test reads"),
        ("Run\n\n    spillway doctor\n", "must have a fence"),
        ("* Run\n  ```bash\n  spillway doctor\n  ```", "in column 1"),
        ("~~~bash\nspillway doctor\n~~~", "in column 1"),
        ("<!-- prints: 4 -->\nText.\n\n```python\nprint(4)\n```", "right before its block"),
        ("<!-- not run: it takes minutes -->", "has no block"),
    ],
)
def test_a_block_that_no_test_would_read_is_an_error(text: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(f"# Page\n\n{text}\n")
    with pytest.raises(AssertionError, match=reason):
        read(tmp_path / "page.md")
