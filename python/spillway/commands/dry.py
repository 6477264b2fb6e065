# SPDX-License-Identifier: Apache-2.0
"""What `run` can be asked of a dry run."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from spillway import profiles
from spillway._files import can_be_written
from spillway.dry_run.alternatives import parse
from spillway.dry_run.question import Question
from spillway.settings import PROFILE

_Command = TypeVar("_Command", bound=Callable[..., Any])
_SHAPE_ONLY = "SPILLWAY_EMULATE_SHAPE_ONLY"


class _Samples(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.5 on
    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not 0 < number < math.inf:
            raise click.ClickException(f"--samples-per-step={value}: expected a number above 0, such as 8")
        return number


class _Steps(click.ParamType):  # type: ignore[type-arg]  # as above
    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if not re.fullmatch("[0-9]{1,9}", str(value)) or int(value) < 1:
            raise click.ClickException(f"--steps={value}: expected an integer above 0, such as 3")
        return int(value)


_OPTIONS = (
    click.option(
        "--samples-per-step",
        type=_Samples(),
        metavar="N",
        help="Dry run: what one step trains on, sequences or tokens, for a rate.",
    ),
    click.option(
        "--steps",
        type=_Steps(),
        metavar="N",
        help="Dry run: end the program after this many steps of its first optimizer.",
    ),
    click.option(
        "--compare",
        metavar="A,B,…",
        help="Dry run: a run for each of plain, checkpoint, recompute, ratio=SHARE, budget=SIZE; a table.",
    ),
    click.option("--json", "output", metavar="FILE", help="Dry run: the page as JSON, too; - for stdout."),
)


def questions(command: _Command) -> _Command:
    """Adds the options."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def taken_from(values: dict[str, Any]) -> dict[str, Any]:
    """Those of `values` that are not the emulated GPU's; they are in it no more."""
    return {name: values.pop(name) for name in ("samples_per_step", "steps", "compare", "output")}


def question(asked: Mapping[str, Any], emulate: str | None, env: Mapping[str, str]) -> Question | None:
    """None where the command does not run dry. Raises ClickException for what cannot be asked."""
    if env.get(_SHAPE_ONLY, "0") in ("", "0"):
        for name, value in asked.items():
            if value is not None:
                flag = "json" if name == "output" else name.replace("_", "-")
                raise click.ClickException(f"--{flag}: needs --shape-only: it asks something of a dry run")
        return None
    output = asked["output"]
    if output is not None and output != "-":
        _try_file(Path(output))
    given = emulate or os.environ.get(PROFILE)
    return Question(
        profiles.read(given).name if given else "",
        asked["samples_per_step"],
        asked["steps"],
        tuple(parse(asked["compare"], env)) if asked["compare"] is not None else (),
        output,
    )


def _try_file(path: Path) -> None:
    """ClickException where it could not be written."""
    if not can_be_written(path):
        raise click.ClickException(f"--json {path}: cannot be written: name a file in a folder that can be")


def answer(program: str, command: Sequence[str], env: Mapping[str, str], question: Question) -> int:
    """The exit status; the page, or the table, is on stderr then."""
    from spillway.dry_run.compare import compare
    from spillway.dry_run.run import run_dry

    if question.alternatives:
        return compare(program, command, env, question)
    return run_dry(program, command, env, question)
