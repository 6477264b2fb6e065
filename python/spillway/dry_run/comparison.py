# SPDX-License-Identifier: Apache-2.0
"""Makes a dry run of a command for each alternative, and compares them. Imports no torch."""

from __future__ import annotations

import dataclasses
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from spillway.checked_run import NOT_EXECUTABLE, end_alike
from spillway.dry_run import words
from spillway.dry_run.alternatives import Alternative
from spillway.dry_run.answer import Answer
from spillway.dry_run.question import Question
from spillway.dry_run.run import answer_of, console, write_document
from spillway.report.sizes import size

__all__ = ["INTERRUPTED", "UNANSWERED", "compare", "run_silently", "why_not"]

UNANSWERED = 1
_MEMORY = "SPILLWAY_EMULATE_MEMORY"
_TIMES_MORE = 16  # memory, to learn how much one needs that does not fit
INTERRUPTED = (-signal.SIGINT, -signal.SIGTERM, -signal.SIGHUP, 128 + signal.SIGINT)


def compare(
    program: str,
    command: Sequence[str],
    env: Mapping[str, str],
    question: Question,
) -> int:
    """Runs the command once for each alternative and prints the table to stderr. Returns 0 if each
    alternative succeeded or ran out of memory, otherwise UNANSWERED. The first alternative has the terminal.
    The output of the others is discarded, except for the last line of one that fails."""
    shown = console()
    answers: list[Answer] = []
    for number, alternative in enumerate(question.alternatives, 1):
        if number == 1:
            answer = answer_of(program, command, env, alternative, question)
        else:
            with shown.status(f"{alternative.name} ({number} of {len(question.alternatives)})"):
                answer = run_silently(program, command, env, alternative, question)
        if answer is None:
            return NOT_EXECUTABLE
        if answer.status in INTERRUPTED:
            return end_alike(answer.status)
        if answer.fits is False:
            more = _TIMES_MORE * max(device["capacity_bytes"] for device in answer.devices)
            with shown.status(f"{alternative.name}, with enough memory"):
                wide = run_silently(program, command, {**env, _MEMORY: f"{more}B"}, alternative, question)
            if wide is not None and wide.fits:
                answer = dataclasses.replace(answer, with_more_memory=wide)
            elif wide is not None:
                answer = dataclasses.replace(answer, error=f"with more memory it {_failure(wide)}")
        answers.append(answer)
    _show(answers, question, shown)
    wrong = write_document(answers, question)
    return UNANSWERED if wrong or any(why_not(answer) for answer in answers) else 0


def run_silently(
    program: str,
    command: Sequence[str],
    env: Mapping[str, str],
    alternative: Alternative,
    question: Question,
) -> Answer | None:
    """As answer_of(), without input and output. Of a run that fails, the answer has the last line."""
    with tempfile.TemporaryFile() as errors:
        nowhere = subprocess.DEVNULL
        answer = answer_of(
            program, command, env, alternative, question, stdin=nowhere, stdout=nowhere, stderr=errors
        )
        errors.seek(0)
        lines = errors.read().decode(errors="replace").strip().splitlines()
    if answer is None or answer.status == 0:
        return answer
    return dataclasses.replace(answer, error=lines[-1] if lines else "")


def _failure(answer: Answer) -> str:
    if missed := answer.budget_missed:
        return f"does not stay within its budget: {missed}"
    if answer.fits is False:
        return "does not fit either"
    return f"failed with status {answer.status}" + (f": {answer.error}" if answer.error else "")


def why_not(answer: Answer) -> str:
    """Why an alternative has no prediction; empty if it has one."""
    if answer.status != 0 and answer.fits is not False:
        return _failure(answer)
    if not answer.processes:
        return words.NO_GPU_USED
    if any(process.get("checkpointed_layers") == 0 for process in answer.processes):
        return (
            "the model has no repeated layers: no ModuleList or Sequential with two or more of one class "
            "that have parts of their own"
        )
    return ""


def _show(answers: Sequence[Answer], question: Question, shown: Console) -> None:
    devices = [device for answer in answers for device in answer.devices]
    if devices:
        shown.print(Text(words.title({}, devices[0], question.profile, False), style="bold"))
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 1), header_style="dim")
    table.add_column("alternative")
    columns = ["peak", "reserved", "fits", "step", "relative"]
    columns += ["samples/s"] * bool(question.samples) + ["to the host", "to the GPU", "pinned"]
    for column in columns:
        table.add_column(column, justify="right")
    first = answers[0].steps_from.step_ms
    for answer in answers:
        if not why_not(answer):
            table.add_row(*map(Text, _row(answer, first, question.samples)))
    shown.print(table)
    for answer in answers:
        why = why_not(answer)
        if not why and answer.fits is False and answer.with_more_memory is None:
            why = answer.error
        if not why and (process := answer.steps_from.unsettled) is not None:
            why = f"its step is {words.unsettled(process)}"
        if why:
            shown.print(Text(f"{answer.alternative}: {why}"), soft_wrap=True)
        for process in answer.processes:
            if (state := process.get("model_state")) and (text := words.model_state(state)):
                line = f"{answer.alternative}: model state at the end: {text}"
                shown.print(Text(line), soft_wrap=True)
    if any(answer.with_more_memory for answer in answers):
        shown.print(Text("Rows that do not fit show the figures of a GPU with enough memory."))
    if any(process.get("compiled") for answer in answers for process in answer.processes):
        shown.print(Text(f"{words.COMPILED[0].upper()}{words.COMPILED[1:]}.", style="dim"))
    shown.print(Text(f"Copied bytes are per step. {words.NOT_COMPARED}", style="dim"))


def _row(answer: Answer, first: float | None, samples: float | None) -> list[str]:
    source = answer.steps_from
    step = source.step_ms
    row = [
        answer.alternative,
        size(source.peak),
        size(source.reserved),
        "yes" if answer.fits else "no",
        words.milliseconds(step) if step else "–",
        f"{step / first:.2f}" if step and first else "–",
    ]
    if samples:
        row.append(f"{samples / step * 1e3:.4g}" if step else "–")
    moved = (source.copied("to_host"), source.copied("to_device"))
    shown = ("–", "–") if source.unsettled else map(size, moved)
    return [*row, *shown, size(source.pinned)]
