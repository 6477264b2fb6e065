# SPDX-License-Identifier: Apache-2.0
"""Commands of the form `spillway NAME [PROFILE] [options] -- COMMAND`: `emulate` and `dry-run`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from spillway import profiles
from spillway.commands import help, options

PROFILES = ", ".join(profiles.names()) + ", or your own .toml file"  # for help
_Command = TypeVar("_Command", bound=Callable[..., Any])
_IN_COMMAND = "spillway.in_command"  # in a context's meta: -- was given


class Command(help.Command):
    """Parses `profile` and the options before the first --, and takes what follows as `command`."""

    groups_of_run = options.OF_JOBS

    def __init__(self, *arguments: Any, profiles: str = "[PROFILE]", **values: Any) -> None:
        super().__init__(*arguments, usage=f"{profiles} [options] -- COMMAND...", **values)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own = args[: args.index("--")] if "--" in args else args
        command = tuple(args[len(own) + 1 :])
        ctx.meta[_IN_COMMAND] = "--" in args
        asks_for_help = any(each in ctx.help_option_names for each in own)
        if not command and not asks_for_help and not ctx.resilient_parsing:
            raise help.no_command(ctx)
        rest = super().parse_args(ctx, list(own))
        ctx.params["command"] = command
        return rest


def _checked(ctx: click.Context, _: click.Parameter, words: tuple[str, ...]) -> str | None:
    if ctx.resilient_parsing or not words:
        return None
    if len(words) > 1:
        raise click.UsageError(f"{words[1]}: expected at most one profile before --, not {len(words)}", ctx)
    profiles.read(words[0])
    return words[0]


def complete(ctx: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    complete = options.complete_file if ctx.meta.get(_IN_COMMAND) else options.complete_profile
    return complete(ctx, parameter, begun)


def profile(command: _Command) -> _Command:
    """Adds `profile`: a profile's name or file, or None. Parsing raises LaunchError for an unusable one."""
    return click.argument("profile", nargs=-1, callback=_checked, shell_complete=complete)(command)
