# SPDX-License-Identifier: Apache-2.0
"""Recorded results: the processes that measure, the documents, and what pages show of them."""

from __future__ import annotations

import datetime
import json
import platform
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from rich.table import Table

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench" / "results"
GIB = 1 << 30


class RunFailed(Exception):
    """A process failed; the message has its last lines."""


def output_of(
    command: Sequence[str], environment: Mapping[str, str], limit: float | None = None, tail: int = 12
) -> str:
    """What a process prints on stdout. Raises RunFailed, with the last `tail` lines."""
    try:
        done = subprocess.run(
            command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=limit, check=False
        )
    except subprocess.TimeoutExpired:
        raise RunFailed(f"stopped after {limit} s") from None
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip().splitlines()[-tail:]
        raise RunFailed("\n".join([f"{' '.join(command)} ended with status {done.returncode}:", *said]))
    return done.stdout


def last_json(text: str) -> Any:
    """The last object among the lines of `text`; what comes before it on its line is a mark."""
    line = [line for line in text.splitlines() if "{" in line][-1]
    return json.loads(line[line.index("{") :])


def version(package: str) -> str | None:
    """Without a local part, such as the CUDA version of torch."""
    try:
        return metadata.version(package).partition("+")[0]
    except metadata.PackageNotFoundError:
        return None


def header(device: str, command: Sequence[str], *packages: str) -> dict[str, Any]:
    """The beginning of every document."""
    return {
        "date": datetime.date.today().isoformat(),
        "device": device,
        "versions": {
            **{name: version(name) for name in ("spillway", "torch", *packages)},
            "python": platform.python_version(),
        },
        "command": list(command),
    }


def write(path: Path, document: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(document, indent=1) + "\n")


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


def table(title: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """For a terminal."""
    found = Table(title=title)
    for number, heading in enumerate(headings):
        found.add_column(heading, justify="right" if number else "left")
    for row in rows:
        found.add_row(*row)
    return found


def markdown(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """For a page."""
    first, *others = (f"| {' | '.join(cells)} |" for cells in (headings, *rows))
    return [first, "|" + "---|" * len(headings), *others]


class Quote:
    """What stands in a page between two comments that have its name: written from a result, never by hand."""

    def __init__(self, name: str, page: str) -> None:
        self.page = ROOT / page
        self.begin, self.end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"

    def marked(self, lines: Iterable[str]) -> str:
        """The lines, with the comments around them."""
        return "\n".join([self.begin, *lines, self.end])

    def found(self) -> str:
        """What the page holds now, with the comments. ValueError where they are missing."""
        text = self.page.read_text()
        return text[text.index(self.begin) : text.index(self.end) + len(self.end)]

    def write(self, lines: Iterable[str]) -> None:
        text = self.page.read_text()
        self.page.write_text(text.replace(self.found(), self.marked(lines)))
