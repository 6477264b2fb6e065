# SPDX-License-Identifier: Apache-2.0
"""docs/architecture.md is true: what its steps name is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
STEPS = re.findall(r"^(\d+)\. (.*(?:\n +\S.*)*)", TEXT, re.MULTILINE)
PLACE = re.compile(r"`([\w/]+\.\w+)` · `([\w:~]+)`$")


def test_the_steps_are_numbered_without_a_gap() -> None:
    assert [int(number) for number, _ in STEPS] == list(range(1, len(STEPS) + 1))
    assert len(STEPS) > 20


@pytest.mark.parametrize(("number", "text"), STEPS, ids=[number for number, _ in STEPS])
def test_the_place_of_a_step_exists(number: str, text: str) -> None:
    place = PLACE.search(text)
    assert place is not None, f"step {number} ends with no `file` · `function`"
    source = (ROOT / place[1]).read_text(encoding="utf-8")
    scope, _, function = place[2].rpartition("::")
    # A definition: its scope stands before it, or around it in a class of the same file.
    outside = re.search(rf"\b{re.escape(place[2])}\(", source)
    inside = re.search(rf"\b(?:class|struct) {scope}\b", source) and re.search(rf"\b{function}\(", source)
    assert outside or inside, f"step {number}: {place[1]} has no {place[2]}"


def test_the_folders_are_named_in_the_order_that_is_enforced() -> None:
    check = (ROOT / "tests/layers/check_layers.py").read_text(encoding="utf-8")
    order = re.search(r"^ORDER = \((.*?)\)$", check, re.MULTILINE | re.DOTALL)
    assert order is not None
    assert f"`{' '.join(re.findall(r'[a-z]+', order[1]))}`" in TEXT
