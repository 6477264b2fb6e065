# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping

import click

from spillway import launch, profiles
from spillway.commands import emulated_job, program
from spillway.commands.dry_run_command import steps_of
from spillway.commands.help import Option, examples
from spillway.dry_run.alternatives import parse
from spillway.dry_run.search import Search, candidates

_HELP = f"""Search for the fastest way to run a command on a GPU, by dry runs.

Nothing is computed and no GPU is needed. PROFILE is a GPU: {emulated_job.PROFILES}.
Each value of --vary replaces {{NAME}} in the command. Every combination is run once.
"""
_EXAMPLES = examples(
    (
        "spillway fit h200 rtx4090 -- python train.py",
        "spillway fit rtx4090 --vary batch=1,2,4 --samples-per-step batch -- python train.py --batch {batch}",
        "spillway fit h200 --ways plain,checkpoint,budget=40GiB,budget=60GiB -- python train.py",
    )
)
_WAYS = "plain,recompute,budget=auto"
_STEPS = 20  # a budget's first steps differ
_MOST = 1000  # dry runs
_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_option = functools.partial(click.option, cls=Option, group="Search")


def _gpus(ctx: click.Context, _: click.Parameter, words: tuple[str, ...]) -> tuple[str, ...]:
    if ctx.resilient_parsing:
        return words
    if not words:
        raise click.UsageError(
            f"expected a profile before the command. Use one of {', '.join(profiles.names())}.", ctx
        )
    for word in words:
        profiles.read(word)
        if words.count(word) > 1:
            raise click.UsageError(f"{word}: is given twice. Remove one.", ctx)
    return words


def _variables(given: tuple[str, ...], command: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    variables: dict[str, tuple[str, ...]] = {}
    for each in given:
        name, _, values = each.partition("=")
        listed = tuple(values.split(","))
        if not _NAME.fullmatch(name) or not all(listed):
            raise click.ClickException(f"--vary={each}: expected NAME=VALUE,VALUE,…, such as batch=1,2,4")
        if name in variables:
            raise click.ClickException(f"--vary={each}: names {name} twice. Remove one.")
        if not any(f"{{{name}}}" in word for word in command):
            raise click.ClickException(
                f"--vary={each}: is not in the command. Put {{{name}}} where the value belongs."
            )
        variables[name] = listed
    return variables


def _samples(given: str | None, variables: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
    """The factors of "batch*4096"."""
    factors = tuple(each.strip() for each in given.split("*")) if given is not None else ()
    for factor in factors:
        if not all(map(_is_positive, variables.get(factor, (factor,)))):
            raise click.ClickException(
                f"--samples-per-step={given}: expected numbers above 0 and names of --vary with such values, "
                "separated by *"
            )
    return factors


def _is_positive(text: str) -> bool:
    try:
        return 0 < float(text) < math.inf
    except ValueError:
        return False


@click.command("fit", cls=emulated_job.Command, profiles="PROFILE...", help=_HELP, epilog=_EXAMPLES)
@click.argument("gpus", nargs=-1, callback=_gpus, shell_complete=emulated_job.complete)
@_option("--vary", multiple=True, metavar="NAME=A,B,…", help="Values in place of {NAME} in the command.")
@_option("--ways", default=_WAYS, metavar="A,B,…", help=f"As --compare of dry-run. Default: {_WAYS}.")
@_option("--samples-per-step", metavar="A*B…", help="Numbers and names of --vary, for a rate.")
@_option("--steps", type=steps_of, default=str(_STEPS), metavar="N", help=f"Of each run. Default: {_STEPS}.")
@_option("--json", "output", metavar="FILE", help="Write the figures to FILE, too; - for stdout.")
@click.pass_context
def fit(
    context: click.Context,
    /,
    command: tuple[str, ...],
    gpus: tuple[str, ...],
    vary: tuple[str, ...],
    ways: str,
    samples_per_step: str | None,
    steps: int,
    output: str | None,
) -> None:
    program.check_output(output)
    environments: dict[str, Mapping[str, str]] = {
        gpu: launch.environment(True, profile=gpu, shape_only=True) for gpu in gpus
    }
    variables = _variables(vary, command)
    wanted = Search(
        environments,
        variables,
        tuple(parse(ways, environments[gpus[0]], "--ways")),
        _samples(samples_per_step, variables),
        steps,
        output,
    )
    runs = sum(1 for _ in candidates(wanted))
    if runs > _MOST:
        raise click.ClickException(f"{runs} dry runs: expected at most {_MOST}. Use fewer values.")
    program.start(context, command, environments[gpus[0]], wanted)
