# SPDX-License-Identifier: Apache-2.0
"""The examples of the pages, read from the pages. README.md in this folder lists the marks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
#: Languages of blocks, and the test that checks them; `text` is for what is not code.
LANGUAGES = {
    "bash": "test_examples.py",
    "python": "test_examples.py",
    "c": "test_compiled_examples.py",
    "cpp": "test_compiled_examples.py",
    "cmake": "test_compiled_examples.py",
    "toml": "test_commands.py",
    "text": None,
}

_FENCE = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?$")
_NOT_RUN = re.compile(r"^<!-- not run: (\S.*) -->$")
_STATUS = re.compile(r"^<!-- exit status (\d+) -->$")
_PRINTS = re.compile(r"^<!-- prints: (\S.*) -->$")
_HIDDEN = re.compile(r"^<!-- (setup|file) ?(\S*)$")


@dataclass
class Block:
    language: str
    line: int  # of its first line of code, from 1
    text: str
    title: str | None = None
    status: int = 0  # of the last command
    prints: list[str] = field(default_factory=list)
    not_run: str | None = None  # the reason
    setup: str = ""  # C and C++: what stands before the block, outside of a function
    files: dict[str, str] = field(default_factory=dict)  # of this block alone, by name

    @property
    def commands(self) -> list[str]:
        """Commands of a shell block, without comments; a backslash continues a line."""
        lines = self.text.replace("\\\n", " ").splitlines()
        return [found for line in lines if (found := re.sub(r"(^|\s+)#.*", "", line).strip())]


@dataclass
class Page:
    path: Path
    blocks: list[Block] = field(default_factory=list)

    @property
    def name(self) -> str:
        return str(self.path.relative_to(ROOT))

    def of(self, *languages: str) -> list[Block]:
        """The blocks that are run, without those that are files."""
        return [
            each
            for each in self.blocks
            if each.language in languages and each.title is None and each.not_run is None
        ]


def read(path: Path) -> Page:
    """Raises AssertionError for a block that no test would read."""
    page = Page(path)
    lines = path.read_text(encoding="utf-8").splitlines()
    number, block = 0, Block("", 0, "")
    marked = False

    def until(end: str) -> str:
        nonlocal number
        last = lines.index(end, number)
        text = "\n".join(lines[number:last])
        number = last + 1
        return text

    while number < len(lines):
        line = lines[number]
        number += 1
        where = f"{path}:{number}"
        if found := _NOT_RUN.match(line):
            block.not_run = found[1]
        elif found := _STATUS.match(line):
            block.status = int(found[1])
        elif found := _PRINTS.match(line):
            block.prints.append(found[1])
        elif found := _HIDDEN.match(line):
            first = number + 1
            text = until("-->")
            if found[1] == "file":
                block.files[found[2]] = text
            elif found[2]:
                block.setup += text + "\n"
            else:
                page.blocks.append(Block("python", first, text))
                continue
        elif line.startswith("```"):
            found = _FENCE.match(line)
            assert found, f"{where}: a block must name its language: {line}"
            assert found[1] in LANGUAGES, f"{where}: no test reads blocks of {found[1]}"
            block.language, block.title, block.line = found[1], found[2], number + 1
            block.text = until("```")
            page.blocks.append(block)
            block, marked = Block("", 0, ""), False
            continue
        else:
            assert not re.match(r"\s+(```|~~~)|~~~", line), (
                f"{where}: a block must begin with ``` in column 1"
            )
            is_code = line.startswith("    ") and line.strip() and not lines[number - 2].strip()
            assert not is_code, f"{where}: a block must have a fence and a language: {line}"
            assert not (marked and line), f"{where}: a mark must stand right before its block"
            continue
        marked = True
    assert not marked, f"{path}: the last mark has no block"
    return page


def pages() -> list[Page]:
    return [read(path) for path in PAGES]


def files() -> dict[str, str]:
    """The files that pages show, by name."""
    shown: dict[str, str] = {}
    for page in pages():
        for each in page.blocks:
            if each.title:
                assert shown.setdefault(each.title, each.text) == each.text, f"two pages show {each.title}"
    return shown


def inline_code(text: str) -> Iterator[str]:
    """What stands between backticks outside of blocks."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    yield from (found.replace("\n", " ") for found in re.findall(r"`([^`]+)`", prose))
