# SPDX-License-Identifier: Apache-2.0
"""Errors have one form (CONTRIBUTING.md): `SUBJECT: reason. Action.` for a setting, file or process, and
`NAME must be …, not VALUE. Action.` for an argument. Those of C++ are full sentences as well."""

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
OTHER_KINDS = ("debug", "info", "warning", "error", "print", "refused", "announce", *messages.RETURNING)


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


# Verbs that begin an action.
ACTIONS = (
    "add|allocate|allow|begin|call|check|convert|create|do not|end|free|give|hide|install|leave|let|make|pad|"
    "pass|put|raise|reduce|remove|resume|run|send|set|share|start|unset|use"
)
# Parts of messages, and those whose text is PyTorch's or another program's.
CPP_PARTS = ("bad", "log", "not_ours", "nothing_under", "report", "text", "wrong", "advice")


def cpp_messages() -> list[Any]:
    """Errors of C++ with `0` for each value."""
    found = []
    for message in messages.messages():
        text = re.sub(r"\{[^{}]*\}", "0", " ".join(message.text.split()))
        cpp = message.component.split("/")[0] in messages.CPP_FOLDERS
        if cpp and " " in text and " … " not in text and message.kind not in CPP_PARTS:
            found.append(pytest.param(text, id=f"{message.component}-{text[:60]}"))
    return found


@pytest.mark.parametrize("text", cpp_messages())
def test_a_message_of_cpp_has_complete_sentences(text: str) -> None:
    text = re.sub(r"\([^()]*\)|\"[^\"]*\"|`[^`]*`|(?<=\W)'[^']*'", "0", text)
    *others, last = re.split(r"(?<=[\w)%…])[.?!] (?=[A-Z0`])", text)
    assert last.endswith(".") == bool(others) or last.endswith("0"), "a period ends each of several sentences"
    assert not re.search(rf"[:;] (?:{ACTIONS}) ", text), "the action is a sentence of its own"
