# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import click

from spillway.commands import emulated_job, options, program
from spillway.commands.help import examples

_HELP = f"""Run a command on the emulated GPU.

PROFILE gives it the memory and, with --clock virtual, the speed of a real GPU: {emulated_job.PROFILES}.
Without PROFILE it has 8 GiB, and the speed of no real GPU.
"""
_EXAMPLES = examples(
    (
        "spillway emulate -- python train.py",
        "spillway emulate h100 --clock virtual --ratio 0.5 -- python train.py",
        "spillway emulate --check --schedule late -- python train.py",
    )
)


@click.command(cls=emulated_job.Command, help=_HELP, epilog=_EXAMPLES)
@emulated_job.profile
@options.emulated_gpu(*options.EMULATED)
@options.job
@click.pass_context
def emulate(context: click.Context, /, command: tuple[str, ...], **values: Any) -> None:
    program.start(context, command, options.environment(emulate=True, **values))
