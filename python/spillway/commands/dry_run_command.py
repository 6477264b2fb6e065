# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import functools
import math
import re
from typing import Any

import click

from spillway.commands import emulated_job, options, program
from spillway.commands.help import Option, examples, option_names
from spillway.settings import reasons_against

_HELP = f"""Predict a command's peak memory and step time at full size.

Nothing is computed and no GPU is needed. PROFILE is the GPU to predict: {emulated_job.PROFILES}.
Without PROFILE it has 8 GiB, and the speed of no real GPU.
"""
_EXAMPLES = examples(
    (
        "spillway dry-run h200 --budget 20GiB -- python train.py",
        "spillway dry-run h100 --samples-per-step 8 --steps 3 -- python train.py",
        "spillway dry-run h200 --compare plain,recompute,ratio=0.5 -- python train.py",
    )
)
_option = functools.partial(click.option, cls=Option, group="Dry run")


def _samples(value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise click.ClickException(f"--samples-per-step={value}: expected a number above 0, such as 8")
    return number


def steps_of(value: str) -> int:
    if not re.fullmatch("[0-9]{1,9}", value) or int(value) < 1:
        raise click.ClickException(f"--steps={value}: expected an integer above 0, such as 3")
    return int(value)


class _Command(emulated_job.Command):
    """Names `emulate` for an option that only it has."""

    def instead_of(self, option: str) -> str | None:
        from spillway.commands.emulate_command import emulate

        if option not in option_names(emulate):
            return None
        reasons = reasons_against("SPILLWAY_EMULATE_SHAPE_ONLY")
        why = reasons.get(option.removeprefix("--"), "is not an option of dry-run")
        return f"{why}. Use spillway emulate {option}."


@click.command("dry-run", cls=_Command, help=_HELP, epilog=_EXAMPLES)
@emulated_job.profile
@_option("--samples-per-step", type=_samples, metavar="N", help="Sequences or tokens in a step, for a rate.")
@_option("--steps", type=steps_of, metavar="N", help="End after N steps of the first optimizer.")
@_option("--compare", metavar="A,B,…", help="Compare plain,checkpoint,recompute,ratio=,budget=.")
@_option("--json", "output", metavar="FILE", help="Write the figures to FILE, too; - for stdout.")
@options.emulated_gpu(*options.DRY_RUN)
@options.job
@click.pass_context
def dry_run(
    context: click.Context,
    /,
    command: tuple[str, ...],
    profile: str | None,
    samples_per_step: float | None,
    steps: int | None,
    compare: str | None,
    output: str | None,
    **values: Any,
) -> None:
    env = options.environment(emulate=True, profile=profile, shape_only=True, **values)
    program.start(
        context, command, env, program.question_of(env, profile, samples_per_step, steps, compare, output)
    )
