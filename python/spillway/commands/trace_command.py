# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json

import click

_EXAMPLES = """\b
Examples:
  SPILLWAY_PRELOAD_TRACE=calls spillway run -- python train.py
  spillway trace show calls
"""


@click.group(epilog=_EXAMPLES, no_args_is_help=False, invoke_without_command=True)
@click.pass_context
def trace(context: click.Context) -> None:
    """Summarize a trace of allocations or of CUDA calls."""
    if context.invoked_subcommand is None:
        raise click.UsageError("expected a command: show")


@trace.command(epilog=_EXAMPLES)
@click.argument("file")
def show(file: str) -> None:
    """Print a JSON summary of a trace from spillway.memory.record_trace() or SPILLWAY_PRELOAD_TRACE."""
    from spillway import preload_trace, trace

    try:
        if preload_trace.is_preload_trace(file):
            summary = preload_trace.summary(preload_trace.read_preload_trace(file))
        else:
            summary = trace.summary(trace.read_trace(file))
        click.echo(json.dumps(summary, indent=1))
    except ValueError as error:
        raise click.ClickException(str(error)) from None
