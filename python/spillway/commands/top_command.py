# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json

import click

from spillway.commands import wide_console

_EXAMPLES = """\b
Examples:
  spillway top 4711
  spillway top out                  a job started with --report out
  spillway top 4711 --once --json   for scripts
"""


@click.command(epilog=_EXAMPLES)
@click.argument("target", metavar="PID|DIR")
@click.option("--once", is_flag=True, help="Print one snapshot and exit.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one line per snapshot.")
@click.option(
    "--interval",
    type=click.FloatRange(0.1, 3600),
    default=1.0,
    show_default=True,
    help="Seconds between snapshots.",
)
def top(target: str, once: bool, as_json: bool, interval: float) -> None:
    """Watch a running job: device memory, offloaded bytes, copies, stalls.

    If stdout is not a terminal, each snapshot is printed below the last one.
    """
    import contextlib
    import time

    from spillway.top import pages
    from spillway.top.reading import TopError, find, read
    from spillway.top.view import picture, watch

    def look() -> list:  # type: ignore[type-arg]
        return [read(page) for page in find(target)]

    try:
        readings = look()
    except TopError as error:
        raise click.ClickException(str(error)) from None
    finally:
        pages.remove_stale()  # only now: a page shows that its process has ended
    with contextlib.suppress(KeyboardInterrupt):
        if as_json:
            while True:
                click.echo(json.dumps({"processes": [reading.as_dict() for reading in readings]}))
                if once:
                    return
                time.sleep(interval)
                try:
                    readings = look()
                except TopError:
                    return
        if once:
            wide_console().print(picture(readings, [None] * len(readings)))
            return
        watch(look, interval, wide_console())
