# SPDX-License-Identifier: Apache-2.0
"""Runs a command as a dry run and prints the results at its end. Imports no torch."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from spillway._files import reason_of
from spillway._scratch import scratch_folder
from spillway._text import printable
from spillway.checked_run import NOT_EXECUTABLE, end_alike, run_to_end
from spillway.dry_run.alternatives import Alternative
from spillway.dry_run.answer import QUESTION, Answer, read
from spillway.dry_run.page import show
from spillway.dry_run.question import Question

__all__ = ["run_dry"]

FOLDER = "SPILLWAY_EMULATE_ANSWERS"  # where each process writes what its GPUs did
FORMAT = 2
_WIDE = 160


def run_dry(program: str, command: Sequence[str], env: Mapping[str, str], question: Question) -> int:
    """Prints the page to stderr. Returns the command's exit status; ends by the signal that killed it, if
    any."""
    answer = answer_of(program, command, env, Alternative("as given"), question)
    if answer is None:
        return NOT_EXECUTABLE
    sys.stdout.flush()
    show(answer, question.profile, question.samples, console())
    wrong = write_document([answer], question)
    return end_alike(answer.status) or wrong


def console() -> Console:
    """On stderr; in a file or a pipe, wide enough for all lines."""
    return Console(stderr=True, width=None if sys.stderr.isatty() else _WIDE)


def answer_of(
    program: str,
    command: Sequence[str],
    env: Mapping[str, str],
    alternative: Alternative,
    question: Question,
    **options: Any,
) -> Answer | None:
    """`options` are Popen's. None if the command cannot be started, which a line on stderr has reported."""
    with scratch_folder() as folder:
        asked = {
            "steps": question.steps,
            "checkpoint": alternative.checkpoint,
            "profile": question.profile,
            "samples": question.samples,
        }
        (folder / QUESTION).write_text(json.dumps(asked))
        status = run_to_end(program, command, {**env, **alternative.changes, FOLDER: str(folder)}, **options)
        return None if status is None else read(folder, alternative.name, status)


def write_document(answers: Sequence[Answer], question: Question) -> int:
    """As write_json(), in the form of a dry run."""
    document = {
        "spillway_dry_run": FORMAT,
        "profile": question.profile or None,
        "samples_per_step": question.samples,
        "runs": [answer.document(question.samples) for answer in answers],
    }
    return write_json(document, question.output, "spillway dry-run")


def write_json(document: dict[str, Any], output: str | None, command: str) -> int:
    """Writes the JSON that `command` was asked for, if it was. If the file cannot be written, prints one line
    to stderr and returns 1."""
    if output is None:
        return 0
    text = json.dumps(document, indent=2)
    if output == "-":
        print(text)
        return 0
    try:
        Path(output).write_text(text + "\n")
    except OSError as error:
        print(
            f"{command}: --json={printable(output)}: cannot be written ({reason_of(error)})", file=sys.stderr
        )
        return 1
    return 0
