# SPDX-License-Identifier: Apache-2.0
"""A griffe extension: docstrings have roles, literals and literal blocks of reStructuredText; the site wants
Markdown."""

from __future__ import annotations

import re
from typing import Any

import griffe


def as_markdown(text: str) -> str:
    text = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text)
    # Before the literals change: a term is a line that begins with a literal, its definition is indented.
    text = re.sub(
        r"^( *)(``[^\n]+``(?: \([^)\n]*\))?)\n\1    (?=\S)", r"\1\2\n\1:   ", text, flags=re.MULTILINE
    )
    text = re.sub(r"``([^`\n]+)``", r"`\1`", text)
    return re.sub(r"::$", ":", text, flags=re.MULTILINE)


class Docstrings(griffe.Extension):
    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)
