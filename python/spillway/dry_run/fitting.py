# SPDX-License-Identifier: Apache-2.0
"""Makes a dry run of each candidate, and prints them with the fastest first. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from spillway._text import printable
from spillway.checked_run import NOT_EXECUTABLE, end_alike
from spillway.dry_run import words
from spillway.dry_run.answer import Answer
from spillway.dry_run.comparison import INTERRUPTED, UNANSWERED, run_silently, why_not
from spillway.dry_run.question import Question
from spillway.dry_run.run import console, write_json
from spillway.dry_run.search import Candidate, Search, candidates
from spillway.report.sizes import percent, size

__all__ = ["fit", "limit_of"]

FORMAT = 1


@dataclass(frozen=True)
class _Found:
    candidate: Candidate
    answer: Answer
    samples: float | None
    why: str = ""  # it has no prediction

    @property
    def fits(self) -> bool:
        return not self.why and self.answer.fits is True

    @property
    def rate(self) -> float | None:
        """Samples a second; without samples, steps a second."""
        step = self.answer.step_ms
        return (self.samples or 1) / step * 1e3 if self.fits and step else None


def limit_of(answer: Answer) -> str:
    """What a step's time depends on most, or what takes most of the memory where that is not enough."""
    if answer.budget_missed:
        return "the budget"
    if answer.fits is False:
        roles: dict[str, int] = {}
        for device in answer.devices:
            for role, taken in device.get("allocated_at_peak_bytes", {}).items():
                roles[role] = roles.get(role, 0) + int(taken)
        return f"memory: {words.role(max(roles, key=lambda role: roles[role]))}" if roles else "memory"
    shares = next((device["shares"] for device in answer.devices if device["shares"]), None)
    if shares is None:
        return ""
    times = {
        "arithmetic": shares["products"] + shares["attention"],
        "GPU memory's speed": shares["memory_bound"],
        "link to the host": max(shares["copies_to_host"], shares["copies_to_device"]),
        "link to other GPUs": shares["collectives"],
    }
    name = max(times, key=lambda each: times[each])
    return f"{name} ({percent(times[name])})"


def fit(program: str, command: Sequence[str], search: Search) -> int:
    """Makes a dry run of each candidate and prints the table to stderr, the fastest first. Returns 0 if
    something fits, otherwise UNANSWERED. The output of the runs is discarded, except for the last line of one
    that fails."""
    shown = console()
    every = list(candidates(search))
    found: list[_Found] = []
    for number, candidate in enumerate(every, 1):
        question = Question(candidate.gpu, search.samples_of(candidate), search.steps)
        with shown.status(f"{candidate.name} ({number} of {len(every)})"):
            answer = run_silently(
                program, candidate.filled(command), search.gpus[candidate.gpu], candidate.way, question
            )
        if answer is None:
            return NOT_EXECUTABLE
        if answer.status in INTERRUPTED:
            return end_alike(answer.status)
        found.append(_Found(candidate, answer, question.samples, why_not(answer)))
    gpus = list(search.gpus)
    found.sort(key=lambda each: (gpus.index(each.candidate.gpu), -(each.rate or 0)))
    _show(found, command, search, shown)
    document = {"spillway_fit": FORMAT, "runs": [_document(each) for each in found]}
    wrong = write_json(document, search.output, "spillway fit")
    return wrong or (0 if any(each.fits for each in found) else UNANSWERED)


def _show(found: Sequence[_Found], command: Sequence[str], search: Search, shown: Console) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 1), header_style="dim")
    for column in ("GPU", *search.variables, "way", "fits"):
        table.add_column(printable(column))
    for column in ("step", *(["samples/s"] if search.samples else []), "reserved", "pinned"):
        table.add_column(column, justify="right")
    table.add_column("limited by")
    for each in found:
        if not each.why:
            table.add_row(*map(Text, _row(each, search)))
    shown.print(table)
    for each in found:
        if each.why:
            shown.print(Text(f"{each.candidate.name}: {printable(each.why)}"), soft_wrap=True)
        elif each.fits and not each.rate:
            shown.print(Text(f"{each.candidate.name}: its step is {_unknown(each.answer)}"), soft_wrap=True)
    for gpu in search.gpus:
        best = next((each for each in found if each.candidate.gpu == gpu and each.rate), None)
        if best is not None:
            text = best.candidate.to_run(command) or best.candidate.name
        elif any(each.fits for each in found if each.candidate.gpu == gpu):
            text = "the fastest is unknown"
        else:
            text = "nothing fits. Try smaller values, or budget=SIZE among the --ways."
        shown.print(Text(f"{gpu}: {text}", style="bold"), soft_wrap=True)
    shown.print(Text(words.NOT_COMPARED, style="dim"))


def _unknown(answer: Answer) -> str:
    unsettled = answer.unsettled
    return words.NO_STEP if unsettled is None else words.unsettled(unsettled)


def _row(each: _Found, search: Search) -> list[str]:
    answer = each.answer
    step = answer.step_ms if each.fits else None
    rate = [f"{each.rate:.4g}" if each.rate else "–"] if search.samples else []
    return [
        each.candidate.gpu,
        *map(printable, each.candidate.values.values()),
        each.candidate.way.name,
        "yes" if each.fits else "no",
        words.milliseconds(step) if step else "–",
        *rate,
        size(answer.reserved),
        size(answer.pinned),
        limit_of(answer),
    ]


def _document(each: _Found) -> dict[str, Any]:
    return {
        "profile": each.candidate.gpu,
        "values": each.candidate.values,
        "samples_per_second": each.rate if each.samples else None,
        "limited_by": limit_of(each.answer) or None,
        **each.answer.document(each.samples),
    }
