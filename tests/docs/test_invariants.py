# SPDX-License-Identifier: Apache-2.0
"""docs/invariants.md names tests that exist, and comments cite invariants that it has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs/invariants.md").read_text(encoding="utf-8")
SECTIONS = re.findall(r"^## (\d+)\. (.*?)\n(.*?)(?=^## )", TEXT, re.MULTILINE | re.DOTALL)
CASES = "".join(path.read_text(encoding="utf-8") for path in ROOT.glob("tests/torch_glue/cases/*.py"))
CITED = re.compile(r"\binvariants? (\d+)(?: to (\d+))?")


def named_tests(section: str) -> list[tuple[str | None, str]]:
    """Pairs of a file, or None for a case of tests/torch_glue/cases, and a name."""
    found: list[tuple[str | None, str]] = []
    file = None
    for part in section.partition("*Test:*")[2].split(";"):
        file = None
        for name in re.findall(r"`([^`]+)`", part):
            if "/" in name:
                file = name
            else:
                found.append((file, name))
    return found


def case_exists(name: str) -> bool:
    """Names of generated cases have a value in the place of a brace."""
    patterns = re.findall(r"def (\w+)\(|__name__ = f\"([^\"]+)\"", CASES)
    for plain, generated in patterns:
        pattern = re.sub(r"\\{[^}]*\\}", r"[\\w.]+", re.escape(generated)) if generated else plain
        if re.fullmatch(pattern, name):
            return True
    return False


def test_there_are_eighteen() -> None:
    assert [int(number) for number, _, _ in SECTIONS] == list(range(1, 19))


@pytest.mark.parametrize(("number", "title", "section"), SECTIONS, ids=[each[0] for each in SECTIONS])
def test_the_named_tests_exist(number: str, title: str, section: str) -> None:
    tests = named_tests(section)
    assert tests, f"invariant {number} names no test"
    for file, name in tests:
        if file is None:
            assert case_exists(name), f"{name}: no case of tests/torch_glue/cases has this name"
        else:
            text = (ROOT / file).read_text(encoding="utf-8")
            assert re.search(rf"\b{name}\b", text), f"{file} has no {name}"


def test_comments_cite_invariants_that_exist() -> None:
    sources = [
        path
        for folder in ("allocator", "torch_glue", "hooks", "interpose", "include", "tests")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".h", ".cpp", ".py") and path != Path(__file__)
    ]
    numbers = {
        int(number)
        for path in sources
        for found in CITED.findall(path.read_text(encoding="utf-8"))
        for number in found
        if number
    }
    assert len(numbers) >= 8
    assert numbers <= set(range(1, 19))
