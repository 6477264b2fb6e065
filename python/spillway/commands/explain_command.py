# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path

import click

_EXAMPLES = """\b
Examples:
  spillway run --budget 20GiB --report out -- python train.py
  spillway explain out
  spillway dry-run h200 --budget 20GiB --report out -- python train.py
  spillway explain out --json
"""


@click.command(epilog=_EXAMPLES)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def explain(folder: Path, as_json: bool) -> None:
    """Show the step time by budget of a job that ran with --budget and --report DIR.

    For each region and GPU: the plan of its last steps, how close they are to the best possible plan and what
    limits them, and the predicted step time for each budget.
    """
    from spillway.report.log import ReportError, one_line_if_damaged
    from spillway.report.plans import plans_of
    from spillway.report.runs import read_folder

    try:
        found = [(log, plan) for log in read_folder(folder) for plan in plans_of(log)]
        with one_line_if_damaged(folder):
            texts = [str(plan) for _, plan in found]
    except ReportError as error:
        raise click.ClickException(str(error)) from None
    if not found:
        raise click.ClickException(
            f"{folder}: contains no plan. A job that fits within its budget needs none. Otherwise run "
            "it with --budget or --time-limit, let it end, and let it take more steps."
        )
    if as_json:
        click.echo(json.dumps([{"process": log.name, **plan.as_dict()} for log, plan in found], indent=1))
        return
    for index, ((log, _), text) in enumerate(zip(found, texts, strict=True)):
        if index:
            click.echo()
        if len({each.name for each, _ in found}) > 1:
            click.echo(log.name)
        click.echo(text)
