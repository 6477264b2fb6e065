# SPDX-License-Identifier: Apache-2.0
"""The examples of the tutorial and the guides, read from their pages."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [DOCS / "start.md", *sorted((DOCS / "guides").glob("*.md"))]

_FENCE = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?$")
_NOT_RUN = re.compile(r"^<!-- not run: (\S.*) -->$")
_STATUS = re.compile(r"^<!-- exit status (\d+) -->$")
_PRINTS = re.compile(r"^<!-- prints: (\S.*) -->$")


@dataclass
class Block:
    language: str
    line: int  # of its first line of code, from 1
    text: str
    title: str | None = None
    status: int = 0
    prints: str = ""
    not_run: str | None = None  # the reason

    @property
    def commands(self) -> list[str]:
        """Commands of a shell block; a backslash continues a line."""
        return self.text.replace("\\\n", " ").splitlines()


@dataclass
class Page:
    path: Path
    blocks: list[Block] = field(default_factory=list)

    @property
    def name(self) -> str:
        return str(self.path.relative_to(DOCS))

    def of(self, *languages: str) -> list[Block]:
        """The blocks that are run, without those that are files."""
        return [
            each
            for each in self.blocks
            if each.language in languages and each.title is None and each.not_run is None
        ]


def read(path: Path) -> Page:
    page = Page(path)
    lines = path.read_text(encoding="utf-8").splitlines()
    number, marks = 0, {}
    while number < len(lines):
        line = lines[number]
        number += 1
        if found := _NOT_RUN.match(line):
            marks["not_run"] = found[1]
        elif found := _STATUS.match(line):
            marks["status"] = int(found[1])
        elif found := _PRINTS.match(line):
            marks["prints"] = found[1]
        elif line == "<!-- setup":
            end = lines.index("-->", number)
            page.blocks.append(Block("python", number + 1, "\n".join(lines[number:end])))
            number = end + 1
        elif line.startswith("```"):
            found = _FENCE.match(line)
            assert found, f"{path}:{number}: a block must name its language: {line}"
            end = lines.index("```", number)
            text = "\n".join(lines[number:end])
            page.blocks.append(Block(found[1], number + 1, text, title=found[2], **marks))
            number, marks = end + 1, {}
        elif line:
            assert not marks, f"{path}:{number}: a mark must stand right before its block"
    return page


def pages() -> list[Page]:
    return [read(path) for path in PAGES]


def files() -> dict[str, str]:
    """The files that pages show, by name."""
    return {each.title: each.text for page in pages() for each in page.blocks if each.title}
