# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import datetime
import itertools
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import click

from spillway._files import can_be_written
from spillway.bench import programs
from spillway.commands import emulate_option, options, wide_console
from spillway.doctor import gpu

_EXAMPLES = """\b
Examples:
  spillway bench                                 everything
  spillway bench overlap copy --json here.json
  spillway bench copy --filter 'to_host/arena'
  spillway bench --emulate h100 copy
  spillway bench --emulate --link-h2d 50GiB --link-d2h 25GiB --latency 10us copy
"""
_EMULATED = ("memory", "clock", "link_h2d", "link_d2h", "latency")


def _groups_beginning(_: click.Context, __: click.Parameter, begun: str) -> list[str]:
    """For the shell."""
    return [name for name in programs.GROUPS if name.startswith(begun)]


@click.command(cls=emulate_option.Command, epilog=_EXAMPLES)
@click.argument(
    "groups", nargs=-1, metavar=f"[{'|'.join(programs.GROUPS)}]...", shell_complete=_groups_beginning
)
@click.option("--json", "target", metavar="FILE", help="Write the results to FILE; default: a new file here.")
@click.option("--filter", metavar="REGEX", help="Run only benchmarks whose name matches.")
@emulate_option.emulation(*_EMULATED)
def bench(groups: tuple[str, ...], target: str | None, filter: str | None, **values: Any) -> None:
    """Measure copies, their overlap with kernels, and the overhead of Spillway.

    Prints the median, minimum and maximum of each benchmark's repetitions, and saves all of them as JSON. On
    the emulated GPU device times are modeled (--clock virtual, the default here).
    """
    for group in groups:
        if group not in programs.GROUPS:
            raise click.UsageError(f"{group}: unknown group. Use one of {', '.join(programs.GROUPS)}.")
    env = _environment(**values)
    emulated = env.get("SPILLWAY_EMULATE") == "1"
    if not emulated and not gpu.device_count():
        raise click.ClickException("no GPU was found. Add --emulate, or run spillway doctor to see why.")
    try:
        chosen = programs.find(list(dict.fromkeys(groups)) or list(programs.GROUPS))
        path = _target(target, emulated)
        document = _measure(chosen, filter, env)
    except programs.BenchError as error:
        raise click.ClickException(str(error)) from None
    path.write_text(json.dumps(document, indent=1) + "\n")
    from spillway.bench.tables import show

    show(document, wide_console())
    click.echo(f"{document['device']}: results in {path}")


def _environment(emulate: str | None, **values: Any) -> dict[str, str]:
    if emulate is not None or os.environ.get("SPILLWAY_EMULATE") == "1":
        values["clock"] = values["clock"] or os.environ.get("SPILLWAY_EMULATE_CLOCK") or "virtual"
    return options.environment(emulate is not None, emulate or None, preload=False, **values)


def _target(given: str | None, emulated: bool) -> Path:
    """The file of the results. A generated name never overwrites a file."""
    if given is not None:
        path = Path(given)
        if not can_be_written(path):
            raise click.ClickException(
                f"--json={given}: cannot be written. Name a file in a writable folder."
            )
        return path
    device = "emulated-gpu" if emulated else re.sub(r"[^a-z0-9]+", "-", gpu.name().lower()).strip("-")
    stem = f"spillway-bench-{datetime.date.today()}-{device}"
    names = itertools.chain([stem], (f"{stem}-{number}" for number in itertools.count(2)))
    return next(path for path in (Path(f"{name}.json") for name in names) if not path.exists())


def _measure(chosen: list[Path], filter: str | None, env: dict[str, str]) -> dict[str, Any]:
    from rich.console import Console

    results: dict[str, Any] = {}
    with Console(stderr=True).status("") as status:
        for program in chosen:
            status.update(program.name)
            results[program.name] = programs.run(program, filter, env)
    measured = {name: each for name, each in results.items() if each["benchmarks"]}
    if not measured:
        raise programs.BenchError(
            f"--filter={filter}: fits no benchmark of these groups. Leave it out to see their names."
        )
    context = next(iter(measured.values()))["context"]
    return {
        "device": context["device"],
        "emulated": context["emulated"] == "yes",
        "device_clock": context["device_clock"],
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "command": ["spillway", *sys.argv[1:]],
        "settings": {name: value for name, value in sorted(env.items()) if name.startswith("SPILLWAY_")},
        "programs": measured,
    }
