# SPDX-License-Identifier: Apache-2.0
"""Parts of pages that are written from a result, never by hand."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


class Quote:
    """What stands in a page between two comments that have its name."""

    def __init__(self, name: str) -> None:
        self.begin, self.end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"

    def marked(self, lines: Iterable[str]) -> str:
        """The lines, with the comments around them."""
        return "\n".join([self.begin, *lines, self.end])

    def found(self, text: str) -> str:
        """What `text` holds now, with the comments. ValueError where they are missing."""
        begin, end = text.index(self.begin), text.index(self.end) + len(self.end)
        return text[begin:end]

    def write(self, page: Path, marked: str) -> None:
        text = page.read_text()
        page.write_text(text.replace(self.found(text), marked))
