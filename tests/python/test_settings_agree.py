# SPDX-License-Identifier: Apache-2.0
"""The launcher reads numbers as the library does: one table of texts for both (tests/base/numbers.inc)."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from spillway import _setting_values, limits

TABLE = Path(__file__).parents[1] / "base/numbers.inc"
TEXTS = re.findall(r'^(SIZE|NUMBER|INTEGER)\("(.*)", ([01])\)$', TABLE.read_text(), re.MULTILINE)


def _accepts(read: Callable[[str, str], object], text: str) -> bool:
    try:
        read("--option", text)
    except ValueError:
        return False
    return True


def test_the_table_has_texts_of_each_kind():
    assert {(kind, accepted) for kind, _, accepted in TEXTS} == {
        (kind, accepted) for kind in ("SIZE", "NUMBER", "INTEGER") for accepted in "01"
    }


@pytest.mark.parametrize(("kind", "text", "accepted"), TEXTS)
def test_the_launcher_accepts_what_the_library_accepts(kind, text, accepted):
    read = {
        "SIZE": _setting_values.size,
        "NUMBER": _setting_values.ratio,
        "INTEGER": _setting_values.integer(1, 8),
    }[kind]

    assert _accepts(read, text) == (accepted == "1")


@pytest.mark.parametrize(
    ("text", "accepted"), [(text, accepted) for kind, text, accepted in TEXTS if kind == "SIZE"]
)
def test_sizes_in_python_are_read_alike(text, accepted):
    assert _accepts(limits.size_of, text) == (accepted == "1")
