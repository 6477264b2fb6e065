# SPDX-License-Identifier: Apache-2.0
"""Errors have one form (CONTRIBUTING.md): `SUBJECT: reason. Action.` for a setting, file or process, and
`NAME must be …, not VALUE. Action.` for an argument."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import spillway

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "scripts"))

import messages  # noqa: E402

PACKAGE = Path(spillway.__file__).resolve().parent
# Errors whose text is another program's, has several lines, or is made of the error's fields.
EXCEPT = ("demo/compare.py", "budget_error.py")
# Log lines, what is printed beside an error, and parts of messages.
OTHER_KINDS = ("debug", "info", "warning", "error", "print", "refused", "say", *messages.RETURNING)


def all_messages() -> list[Any]:
    """With `0` for each value. Of an error with several arguments, the first."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        for number, message in enumerate(messages.python_messages(path.read_text(), name)):
            text = re.sub(r"\{[^{}]*\}", "0", message.text).split(" | ")[
                -1 if message.kind == "OSError" else 0
            ]
            if " " in text and name not in EXCEPT and message.kind not in OTHER_KINDS:
                found.append(pytest.param(text, id=f"{name}-{number}"))
    return found


MESSAGES = all_messages()


def test_the_messages_are_found() -> None:
    assert len(MESSAGES) > 100


@pytest.mark.parametrize("text", MESSAGES)
def test_a_message_has_one_subject_and_complete_sentences(text: str) -> None:
    text = re.sub(r"\([^()]*\)|\"[^\"]*\"|`[^`]*`|(?<=\W)'[^']*'", "0", text)
    subjects, _, _ = text.rpartition(": ")
    # A subject may have a position: FILE: FIELD=VALUE. No reason follows a reason.
    assert text.count(": ") <= 2 and not re.search(r"\. |; | (is|are|has|needs|must|cannot) ", subjects)
    *others, last = re.split(r"(?<=[\w)%…])\. (?=[A-Z0])", text)
    ends_well = last == "0" or last.endswith(".") == bool(others)
    assert ends_well, "several sentences end with a period, one sentence does not"
    assert "\n" not in text
