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
    limits them, and the predicted step time for each budget. Then, for each process, its model state by class
    at the end, and what of it stays on the GPU and why.
    """
    from spillway.report.log import ReportError, one_line_if_damaged
    from spillway.report.model_state import facts, model_state_of
    from spillway.report.plans import plans_of
    from spillway.report.runs import read_folder

    try:
        logs = read_folder(folder)
        found = [(log, plan) for log in logs for plan in plans_of(log)]
        states = {log.name: model_state_of(log) for log in logs}
        with one_line_if_damaged(folder):
            texts = [(log.name, str(plan)) for log, plan in found]
            texts += [(log.name, "\n".join(facts(log))) for log in logs if states[log.name]]
    except ReportError as error:
        raise click.ClickException(str(error)) from None
    if not texts:
        raise click.ClickException(
            f"{folder}: contains no plan. A job that fits within its budget needs none. Otherwise run "
            "it with --budget or --time-limit, let it end, and let it take more steps."
        )
    if as_json:
        documents = [{"process": log.name, **plan.as_dict()} for log, plan in found]
        documents += [{"process": name, "model_state": state} for name, state in states.items() if state]
        click.echo(json.dumps(documents, indent=1))
        return
    for index, (name, text) in enumerate(texts):
        if index:
            click.echo()
        if len({each for each, _ in texts}) > 1:
            click.echo(name)
        click.echo(text)
