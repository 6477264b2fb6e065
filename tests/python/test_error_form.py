# SPDX-License-Identifier: Apache-2.0
"""Errors have one form (CONTRIBUTING.md): `SUBJECT: reason. Action.` for a setting, file or process, and
`NAME must be …, not VALUE. Action.` for an argument."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import spillway

PACKAGE = Path(spillway.__file__).resolve().parent
# Errors whose text is another program's, or has several lines.
EXCEPT = {"demo/compare.py": "the last lines of a failed process"}


def text_of(node: ast.expr) -> str | None:
    """A message with `0` for each value; None where it is not written at the raise."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(each.value if isinstance(each, ast.Constant) else "0" for each in node.values)
    if isinstance(node, ast.BinOp):
        sides = text_of(node.left), text_of(node.right) or "0"
        return None if sides[0] is None else sides[0] + sides[1]
    return None


def messages() -> Iterator[tuple[str, str]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        for node in ast.walk(ast.parse(path.read_text())):
            calls = node.exc if isinstance(node, ast.Raise) else node
            if not isinstance(calls, ast.Call) or not calls.args:
                continue
            called = ast.unparse(calls.func).split(".")[-1]
            if not isinstance(node, ast.Raise) and called not in ("warn", "_say", "_end"):
                continue
            text = text_of(calls.args[-1] if called == "OSError" else calls.args[0])
            if text and " " in text and name not in EXCEPT:
                yield f"{name}:{calls.lineno}", text


MESSAGES = dict(messages())


def test_the_messages_are_found() -> None:
    assert len(MESSAGES) > 100


@pytest.mark.parametrize("place", MESSAGES)
def test_a_message_has_one_subject_and_complete_sentences(place: str) -> None:
    text = re.sub(r"\([^()]*\)|\"[^\"]*\"|`[^`]*`|(?<=\W)'[^']*'", "0", MESSAGES[place])
    subjects, _, _ = text.rpartition(": ")
    # A subject may have a position: FILE: FIELD=VALUE. No reason follows a reason.
    assert text.count(": ") <= 2 and not re.search(r"\. |; | (is|are|has|needs|must|cannot) ", subjects)
    *others, last = re.split(r"(?<=[\w)%…])\. (?=[A-Z0])", text)
    ends_well = last == "0" or last.endswith(".") == bool(others)
    assert ends_well, "several sentences end with a period, one sentence does not"
    assert "\n" not in text
