# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import click

_EXAMPLES = """\b
Examples:
  spillway run --ratio 0.5 --report out -- python train.py
  spillway report out
  spillway report out --output run.html
"""


@click.command(epilog=_EXAMPLES)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the page to FILE; default: report.html in DIR. The trace is written beside it, unless FILE "
    "is a device or a pipe.",
)
def report(folder: Path, output: Path | None) -> None:
    """Render a finished or running job as one HTML page.

    The job must run with --report DIR. Writes a self-contained page and a trace for Perfetto, and prints a
    summary.
    """
    from rich.console import Console

    from spillway._text import printable
    from spillway.report.log import ReportError, one_line_if_damaged
    from spillway.report.output import read, write
    from spillway.report.terminal import show

    page = output or folder / "report.html"
    try:
        with Console(stderr=True).status("") as status:  # a file or a pipe gets none of it
            digests = read(folder, status.update)
            status.update("writing the page and the trace")
            trace = write(digests, page)
        console = Console()
        with one_line_if_damaged(folder):
            show(digests, console)
    except ReportError as error:
        raise click.ClickException(str(error)) from None
    for path in filter(None, (page, trace)):
        console.print(printable(str(path)), highlight=False, markup=False, soft_wrap=True)
