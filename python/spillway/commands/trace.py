# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json

import click


@click.group()
def trace() -> None:
    """Show what a trace of allocations holds."""


@trace.command()
@click.argument("file")
def show(file: str) -> None:
    """Print a summary, as JSON, of a trace that spillway.record_trace() has written."""
    from spillway.trace import read_trace, summary

    try:
        click.echo(json.dumps(summary(read_trace(file)), indent=1))
    except ValueError as error:
        raise click.ClickException(str(error)) from None
