# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import sys
from dataclasses import asdict

import click

STYLES = {"ok": "green", "warning": "yellow", "problem": "bold red"}


@click.command(epilog="Example: spillway doctor --json | jq '.findings[] | select(.level != \"ok\")'")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def doctor(as_json: bool) -> None:
    """Check this machine for problems.

    Each line is ok, a warning (Spillway works, but slower) or a problem, with the fix. The exit status is 1
    if there is a problem.
    """
    from spillway.doctor import examine

    findings = examine()
    worst = max((finding.level.value for finding in findings), key=list(STYLES).index)
    if as_json:
        click.echo(
            json.dumps({"worst": worst, "findings": [asdict(finding) for finding in findings]}, indent=1)
        )
    else:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, show_header=False, pad_edge=False)
        for finding in findings:
            level = Text(finding.level.value, style=STYLES[finding.level.value])
            table.add_row(level, finding.what, Text(finding.text))
            if finding.advice:
                table.add_row("", "", Text(f"→ {finding.advice}", style="italic"))
        Console().print(table)
    sys.exit(int(worst == "problem"))
