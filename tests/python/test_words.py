# SPDX-License-Identifier: Apache-2.0
"""scripts/words.py finds each banned phrase in whatever form it is written."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts/words.py"
sys.path.append(str(SCRIPT.parent))

import words  # noqa: E402


def check(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    (folder / "text.cpp").write_text(text)
    return subprocess.run(
        [sys.executable, SCRIPT, "text.cpp"], cwd=folder, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("// The heap makes it anew.", 1),
        ("int x;\n/// Memory is given\n/// back then.", 2),
        ("void give_back(Bytes);", 1),
        ("TEST(Heap, ItGivesBack) {}", 1),
        ("TEST(Heap, ThatNobodyHolds) {}", 1),
        ("\n\n// TWINS", 3),
        ("bool told_ = false;", 1),
        ("int x;\n# Offloaded at the\n# turn.", 2),
        ("A storage takes the place of another.", 1),
        ("void Reporter::TellCost();", 1),
    ],
)
def test_a_phrase_is_found_in_prose_and_in_identifiers(tmp_path: Path, text: str, line: int) -> None:
    found = check(tmp_path, text)
    assert found.returncode == 1
    assert found.stdout.startswith(f"text.cpp:{line}: "), found.stdout


@pytest.mark.parametrize(
    "text", ["A new block.", "TEST(Heap, ANewBlock) {}", "// twinned, adorned, amended, indoors, intelligent"]
)
def test_other_words_are_not(tmp_path: Path, text: str) -> None:
    found = check(tmp_path, text)
    assert (found.returncode, found.stdout) == (0, "")


def test_exceptions_are_few_and_state_their_reason() -> None:
    assert len(words.EXCEPTIONS) <= 20
    for (file, _), reason in words.EXCEPTIONS.items():
        assert (ROOT / file).exists(), file
        assert " " in reason, f"{file}: {reason!r}"


def words_of_the_glossary() -> list[str]:
    """The last column: words that stand for the term no longer."""
    rows = [line.split("|") for line in (ROOT / "docs/glossary.md").read_text().splitlines()]
    cells = [row[3] for row in rows if len(row) == 5 and "---" not in row[3] and row[1].strip() != "term"]
    return [phrase.strip() for cell in cells for phrase in cell.split(",") if phrase.strip()]


def test_the_glossary_has_such_words() -> None:
    assert len(words_of_the_glossary()) > 30


@pytest.mark.parametrize("phrase", words_of_the_glossary())
def test_a_word_that_the_glossary_replaces_is_banned(phrase: str) -> None:
    assert words.pattern().search(f"// {phrase}."), f"add {phrase!r} to BANNED of scripts/words.py"
