# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import shlex
from typing import Any

import click

from spillway.commands import emulate_option, options


@click.command(
    cls=emulate_option.Command, epilog='Example: eval "$(spillway env --ratio 0.5)" && python train.py'
)
@options.job
@emulate_option.emulation(*options.EMULATED)
def env(emulate: str | None, **values: Any) -> None:
    """Print the environment of `run` as shell commands.

    With --emulate: the environment of `spillway emulate`.
    """
    environment = options.environment(emulate is not None, emulate or None, **values)
    for name in sorted(os.environ.keys() - environment.keys()):
        click.echo(f"unset {name}")
    for name in sorted(environment):
        if environment[name] != os.environ.get(name):
            # As bytes: a path need not be text.
            click.echo(os.fsencode(f"export {name}={shlex.quote(environment[name])}"))
