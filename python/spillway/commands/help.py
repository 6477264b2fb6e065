# SPDX-License-Identifier: Apache-2.0
"""Help in groups: each option stands under its heading, and all options share one column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

_OTHER = "Options"


class Option(click.Option):
    """An option with the heading that it stands under."""

    def __init__(self, *arguments: Any, group: str = _OTHER, **values: Any) -> None:
        super().__init__(*arguments, **values)
        self.group = group

    def type_cast_value(self, ctx: click.Context, value: Any) -> Any:
        """Fails for `--option -- COMMAND`, whose `--` click takes for the value."""
        if value == "--" or (isinstance(value, tuple) and "--" in value):
            raise click.BadOptionUsage(self.opts[0], f"Option {self.opts[0]!r} requires an argument.", ctx)
        return super().type_cast_value(ctx, value)


class Command(click.Command):
    """A command whose help lists its options by group. `usage` is what follows the command's name."""

    #: Groups of options that the help of `run` lists; this command's help refers to them in one line.
    groups_of_run: frozenset[str] = frozenset()

    def __init__(self, *arguments: Any, usage: str | None = None, **values: Any) -> None:
        super().__init__(*arguments, **values)
        self.usage = usage

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if text := self.instead_of(error.option_name):
                raise click.ClickException(f"{error.option_name}: {text}") from None
            raise
        except click.BadOptionUsage as error:  # click's parser does not set the context
            error.ctx = error.ctx or ctx
            raise

    def instead_of(self, option: str) -> str | None:
        """Why the command does not have an option of another command, and what to use; None otherwise."""
        return None

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [self.usage] if self.usage else super().collect_usage_pieces(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows: dict[str, list[tuple[str, str]]] = {}
        refers_to_run = False
        for param in self.get_params(ctx):
            # A reader of this page knows --help.
            if not isinstance(param, click.Option) or set(param.opts) & set(ctx.help_option_names):
                continue
            group = getattr(param, "group", _OTHER)
            if group in self.groups_of_run:
                refers_to_run = True
            elif (row := param.get_help_record(ctx)) is not None:
                rows.setdefault(group, []).append(row)
        width = max((len(term) for each in rows.values() for term, _ in each), default=0)
        for heading, listed in rows.items():
            with formatter.section(heading):
                formatter.write_dl([(term.ljust(width), text) for term, text in listed])
        if refers_to_run:
            formatter.write_paragraph()
            with formatter.indentation():
                formatter.write_text(
                    "All options of spillway run, such as --budget (see spillway run --help)."
                )


def option_names(command: click.Command) -> set[str]:
    """The names of all options of a command: "--budget"."""
    return {name for each in command.params if isinstance(each, click.Option) for name in each.opts}


def no_command(ctx: click.Context) -> click.UsageError:
    """The error of a command line that has no command to start."""
    return click.UsageError(f"expected a command after --, as in: {ctx.command_path} -- python train.py", ctx)


def examples(lines: Sequence[str]) -> str:
    """The epilog of a command's help."""
    return "\b\nExamples:\n" + "".join(f"  {line}\n" for line in lines)
