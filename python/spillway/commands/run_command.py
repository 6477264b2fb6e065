# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import click

from spillway.commands import options, program
from spillway.commands.help import Command, examples, option_names

_EXAMPLES = examples(
    (
        "spillway run --budget 20GiB -- python train.py",
        "spillway run --budget 80% -- torchrun --nproc-per-node 2 train.py",
        "spillway run --ratio 0.5 --tag-ratio mlp=0.8 --report out -- python train.py",
    )
)

_FORMER = {"emulate": ["--emulate"], "dry-run": ["--shape-only"]}  # options that became commands


class _Command(Command):
    """Names the command whose option was given to `run`."""

    def instead_of(self, option: str) -> str | None:
        from spillway.commands.dry_run_command import dry_run
        from spillway.commands.emulate_command import emulate

        for name, command in (("emulate", emulate), ("dry-run", dry_run)):
            if option in {*option_names(command), *_FORMER[name]}:
                return f"is not an option of run. Use spillway {name} (see spillway {name} --help)."
        return None


@click.command(
    cls=_Command,
    usage="[options] -- COMMAND...",
    epilog=_EXAMPLES,
    context_settings={"allow_interspersed_args": False},
)
@options.job
@click.argument("command", nargs=-1, type=click.UNPROCESSED, shell_complete=options.complete_file)
@click.pass_context
def run(context: click.Context, /, command: tuple[str, ...], **values: Any) -> None:
    """Run a command under Spillway.

    Forwards signals to the command and returns its exit status. Needs a GPU,
    unless SPILLWAY_DISABLE=1 is set; without one see spillway emulate.
    """
    program.start(context, command, options.environment(**values))
