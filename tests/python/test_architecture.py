# SPDX-License-Identifier: Apache-2.0
"""The pages of the architecture are true: the functions of their steps and the order of the folders exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
PAGES = sorted((ROOT / "docs/design").glob("life-of-*.md"))
PLACE = re.compile(r"`([\w/]+\.\w+)` · `([\w:~]+)`$")


def steps(page: Path) -> list[tuple[str, str]]:
    return re.findall(r"^(\d+)\. (.*(?:\n +\S.*)*)", page.read_text(encoding="utf-8"), re.MULTILINE)


STEPS = [pytest.param(text, id=f"{page.stem}-{number}") for page in PAGES for number, text in steps(page)]


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_the_steps_are_numbered_without_a_gap(page: Path) -> None:
    numbers = [int(number) for number, _ in steps(page)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) > 20


@pytest.mark.parametrize("text", STEPS)
def test_the_function_of_a_step_exists(text: str) -> None:
    place = PLACE.search(text)
    assert place is not None, "the step does not end with `file` · `function`"
    source = (ROOT / place[1]).read_text(encoding="utf-8")
    scope, _, function = place[2].rpartition("::")
    # A definition: its scope stands before it, or around it in a class of the same file.
    outside = re.search(rf"\b{re.escape(place[2])}\(", source)
    inside = re.search(rf"\b(?:class|struct) {scope}\b", source) and re.search(rf"\b{function}\(", source)
    assert outside or inside, f"{place[1]} has no {place[2]}"


def test_the_folders_are_named_in_the_order_that_is_enforced() -> None:
    check = (ROOT / "tests/layers/check_layers.py").read_text(encoding="utf-8")
    order = re.search(r"^ORDER = \((.*?)\)$", check, re.MULTILINE | re.DOTALL)
    assert order is not None
    assert f"`{' '.join(re.findall(r'[a-z]+', order[1]))}`" in TEXT
