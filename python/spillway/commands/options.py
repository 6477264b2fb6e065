# SPDX-License-Identifier: Apache-2.0
"""The options that `run` and `env` share, and the environment that they come to."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from spillway import launch, profiles
from spillway.settings import JOB, SETTINGS, Setting

_Command = TypeVar("_Command", bound=Callable[..., Any])
_BARE = "--emulate="
NO_PROFILE = "spillway.no_profile"  # in a context's meta: the word behind --emulate where it is none


class Command(click.Command):
    """One whose `--emulate` may have a profile behind it: a word that is none is the next argument."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, self._with_profile(list(args), ctx))

    def _with_profile(self, args: list[str], ctx: click.Context) -> list[str]:
        """With `--emulate=PROFILE` and `--emulate=` only, up to where the options end."""
        takes_value = {
            name
            for each in self.params
            if isinstance(each, click.Option) and not each.is_flag
            for name in each.opts
        }
        at = 0
        while at < len(args):
            word = args[at]
            if word == "--" or not (word.startswith("-") or ctx.allow_interspersed_args):
                break
            if word == _BARE:
                raise click.UsageError(
                    f"--emulate=: expected a profile; known are {', '.join(profiles.names())}", ctx
                )
            if word == "--emulate":
                behind = args[at + 1 : at + 2]
                profile = behind if behind and profiles.is_profile(behind[0]) else []
                if behind and not profile:
                    ctx.meta[NO_PROFILE] = behind[0]
                args[at : at + 1 + len(profile)] = [_BARE + "".join(profile)]
            at += 2 if word != "--emulate" and word in takes_value else 1
        return args


def shared(command: _Command) -> _Command:
    """Adds them: `emulate`, and one argument for each setting."""
    command = emulation(*(setting.option for setting in SETTINGS))(command)
    for setting in reversed(JOB):
        command = _option(setting)(command)
    return command


def emulation(*names: str) -> Callable[[_Command], _Command]:
    """Adds `emulate` (the profile, empty for none) and these settings of the emulated GPU, to a Command."""

    def add(command: _Command) -> _Command:
        for setting in reversed(SETTINGS):
            if setting.option in names:
                command = _option(setting)(command)
        return click.option(
            "--emulate",
            metavar="[PROFILE]",
            shell_complete=_profiles_beginning,
            help="Run on the emulated GPU: needs no GPU. A profile gives it a real one's memory and, with "
            f"--clock virtual, link: {', '.join(profiles.names())}, or a file that ends in .toml.",
        )(command)

    return add


def _profiles_beginning(_: click.Context, __: click.Parameter, begun: str) -> list[CompletionItem]:
    """For the shell; or files, as the user's own are."""
    found = [CompletionItem(name) for name in profiles.names() if name.startswith(begun)]
    return found or [CompletionItem(begun, type="file")]


def _option(setting: Setting) -> Callable[[_Command], _Command]:
    if setting.is_switch:
        return click.option(setting.flag, setting.option, is_flag=True, default=None, help=setting.help)
    return click.option(
        setting.flag,
        setting.option,
        help=setting.help,
        multiple=setting.repeats,
        metavar=setting.metavar,
    )


def environment(emulate: str | None, preload: bool = True, **values: Any) -> dict[str, str]:
    """The environment. Raises LaunchError for a value that cannot be used."""
    given: dict[str, Any] = {
        name: (",".join(value) if value else None) if isinstance(value, tuple) else value
        for name, value in values.items()
    }
    emulated = emulate is not None or os.environ.get("SPILLWAY_EMULATE") == "1"
    return launch.environment(emulated, profile=emulate or None, preload=preload, **given)
