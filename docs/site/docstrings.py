# SPDX-License-Identifier: Apache-2.0
"""A griffe extension: docstrings have roles, literals and literal blocks of reStructuredText; the site wants
Markdown."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import griffe

sys.path.insert(0, str(Path(__file__).parent))

from reference import as_markdown


class Docstrings(griffe.Extension):
    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)
