# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import shlex
from typing import Any

import click

from spillway.commands import options


@click.command(cls=options.Command, epilog='Example: eval "$(spillway env --ratio 0.5)" && python train.py')
@options.shared
def env(**values: Any) -> None:
    """Print what `run` would set, for a shell to evaluate.

    These are the variables that `spillway run` with the same options would set, or take away.
    """
    environment = options.environment(**values)
    for name in sorted(os.environ.keys() - environment.keys()):
        click.echo(f"unset {name}")
    for name in sorted(environment):
        if environment[name] != os.environ.get(name):
            # As bytes: a path need not be text.
            click.echo(os.fsencode(f"export {name}={shlex.quote(environment[name])}"))
