# SPDX-License-Identifier: Apache-2.0
"""The option `--emulate [PROFILE]` of commands that start no command of the user's: `env` and `bench`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from spillway import profiles
from spillway.commands import help, options

_Command = TypeVar("_Command", bound=Callable[..., Any])
_BARE = "--emulate="


class Command(help.Command):
    """A command whose `--emulate` takes the next word where that is a profile."""

    groups_of_run = options.OF_JOBS

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, self._with_profile(list(args), ctx))

    def _with_profile(self, args: list[str], ctx: click.Context) -> list[str]:
        """With `--emulate=PROFILE` and `--emulate=` only."""
        takes_value = {
            name
            for each in self.params
            if isinstance(each, click.Option) and not each.is_flag
            for name in each.opts
        }
        at = 0
        while at < len(args) and args[at] != "--":
            word = args[at]
            if word == _BARE:
                raise click.UsageError(
                    f"--emulate=: expected a profile. Use one of {', '.join(profiles.names())}.", ctx
                )
            if word == "--emulate":
                behind = args[at + 1 : at + 2]
                profile = behind if behind and profiles.is_profile(behind[0]) else []
                args[at : at + 1 + len(profile)] = [_BARE + "".join(profile)]
            at += 2 if word != "--emulate" and word in takes_value else 1
        return args


def emulation(*names: str) -> Callable[[_Command], _Command]:
    """Adds `emulate` (the profile, empty for none) and these settings of the emulated GPU, to a Command."""

    def add(command: _Command) -> _Command:
        return click.option(
            "--emulate",
            cls=help.Option,
            group="Emulated GPU",
            metavar="[PROFILE]",
            shell_complete=options.complete_profile,
            help="Use the emulated GPU, as PROFILE describes it.",
        )(options.emulated_gpu(*names)(command))

    return add
