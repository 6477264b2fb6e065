# SPDX-License-Identifier: Apache-2.0
"""The `spillway` command."""

from __future__ import annotations

import importlib
import io
import sys
from collections.abc import Sequence

import click

from spillway._text import printable
from spillway.commands.help import examples
from spillway.launch import LaunchError

BAD_USAGE = 2

# By the headings of the help. Command NAME is the function NAME (_ for -) of spillway.commands.NAME_command,
# which is imported on first use.
_GROUPS = {
    "Run": {
        "run": "Run a command under Spillway.",
        "env": "Print the environment of `run`, for a shell to evaluate.",
    },
    "Without a GPU": {
        "emulate": "Run a command on the emulated GPU.",
        "dry-run": "Predict a command's peak memory and step time at full size.",
        "fit": "Search for the fastest way to run a command on a GPU, by dry runs.",
    },
    "Inspect": {
        "report": "Show what a job did: an HTML page, a trace, a summary.",
        "explain": "Show what memory budgets would cost a job that had one.",
        "top": "Watch a running job.",
        "trace": "Show what a trace of allocations holds.",
    },
    "Check and measure": {
        "doctor": "Check this machine for problems.",
        "bench": "Measure copies, their overlap with kernels, and overheads.",
    },
}
COMMANDS = {name: said for group in _GROUPS.values() for name, said in group.items()}

_EXAMPLES = examples(
    (
        "spillway run --budget 20GiB -- python train.py",
        "spillway dry-run h200 --budget 20GiB -- python train.py",
        "spillway doctor",
    )
)
_COMPLETION = """\b
Completion of commands and options in the shell:
  bash: eval "$(_SPILLWAY_COMPLETE=bash_source spillway)"
  zsh:  eval "$(_SPILLWAY_COMPLETE=zsh_source spillway)"
  fish: _SPILLWAY_COMPLETE=fish_source spillway | source
"""


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        function = name.replace("-", "_")
        module = importlib.import_module(f"spillway.commands.{function}_command")
        command: click.Command = getattr(module, function)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, COMMANDS))
        for heading, commands in _GROUPS.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(width), said) for name, said in commands.items()])


def _version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if not wanted:
        return
    from importlib.metadata import PackageNotFoundError, version

    try:
        click.echo(f"spillway {version('spillway')}")
    except PackageNotFoundError:
        click.echo("spillway (not installed)")
    context.exit()


@click.group(
    cls=_Commands,
    epilog=f"{_EXAMPLES}\n{_COMPLETION}",
    no_args_is_help=False,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},  # of the commands, too
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Print the version."
)
@click.pass_context
def spillway(context: click.Context) -> None:
    """Train with more memory than the GPU has."""
    if context.invoked_subcommand is None:
        raise click.UsageError(f"expected a command: {', '.join(COMMANDS)}")


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status. A mistake is one line on stderr and BAD_USAGE."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(
            stream, io.TextIOWrapper
        ):  # whatever the locale's encoding lacks is printed as an escape
            stream.reconfigure(errors="backslashreplace")
    try:
        status = spillway.main(
            args=None if arguments is None else list(arguments), prog_name="spillway", standalone_mode=False
        )
    except click.UsageError as error:
        where = error.ctx.command_path if error.ctx else "spillway"
        print(f"{where}: {printable(_one_line(error))} (see {where} --help)", file=sys.stderr)
        return BAD_USAGE
    except (click.ClickException, LaunchError) as error:
        text = error.format_message() if isinstance(error, click.ClickException) else str(error)
        print(f"spillway {_subcommand(arguments)}: {printable(text)}", file=sys.stderr)
        return BAD_USAGE
    except click.Abort:
        return 130  # the exit status of shells for SIGINT
    return status if isinstance(status, int) else 0


def _one_line(error: click.UsageError) -> str:
    text = error.format_message()
    return text[:1].lower() + text[1:].rstrip(".")


def _subcommand(arguments: Sequence[str] | None) -> str:
    given = sys.argv[1:] if arguments is None else arguments
    return next((each for each in given if each in COMMANDS), "")


if __name__ == "__main__":
    sys.exit(main())
