# SPDX-License-Identifier: Apache-2.0
"""`python -m bench.figures`: measures figures, prints them, writes them down."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from spillway.demo.cli import Parser, output
from spillway.demo.device import why_no_gpu

from bench.figures.registry import FIGURES, Figure, all_kept, entry, show
from bench.figures.session import Session
from bench.pages import PAGES
from bench.results import RESULTS, RunFailed, header, write


def parser() -> argparse.ArgumentParser:
    result = Parser(prog="figures", description=__doc__, allow_abbrev=False)
    result.add_argument("names", nargs="*", metavar="NAME", help="which figures (all)")
    result.add_argument(
        "--list", action="store_true", help="print name, bound and claim of every figure and stop"
    )
    result.add_argument(
        "--of-device", action="store_true", help="only figures that are other ones on another device"
    )
    result.add_argument("--json", type=output, metavar="FILE", help="write here instead of bench/results")
    result.add_argument("--programs", type=Path, required=True, help=argparse.SUPPRESS)
    return result


def measure(figure: Figure, session: Session, console: Console) -> dict[str, Any]:
    """The figure's entry in the document. A figure whose program fails has no value and is short."""
    device = "cpu" if figure.needs == "cpu" else session.device
    found: dict[str, Any] = {"device": device}
    value = None
    if figure.needs == "gpu" and session.device != "cuda":
        found["status"] = "needs-gpu"
    else:
        try:
            value = figure.measure(session)
        except RunFailed as failure:
            console.print(f"{figure.name}: {failure}", style="red", highlight=False, markup=False)
    return entry(figure.name, value, figure.bound, figure.unit, **found)


def device_name(device: str) -> str:
    if device == "emulated":
        return "emulated GPU"
    import torch

    return torch.cuda.get_device_name()


def main(arguments: list[str]) -> int:
    parse = parser()
    options = parse.parse_args(arguments)
    unknown = sorted(set(options.names) - set(FIGURES))
    if unknown:
        parse.error(f"{unknown[0]}: unknown figure; known are {', '.join(sorted(FIGURES))}")
    if options.list:
        for figure in FIGURES.values():
            print(
                f"{figure.name}  {figure.bound.text} {figure.unit}, needs {figure.needs}\n    {figure.claim}"
            )
        return 0
    console = Console()
    session = Session("emulated" if why_no_gpu() else "cuda", options.programs)
    chosen = [figure for name, figure in FIGURES.items() if not options.names or name in options.names]
    if options.of_device:
        chosen = [figure for figure in chosen if figure.needs != "cpu"]
    entries: list[dict[str, Any]] = []
    command = ["scripts/figures", *command_words(options)]
    result = {**header(device_name(session.device), command), "figures": entries}
    path = options.json
    for figure in chosen:
        console.print(f"measuring {figure.name}", highlight=False)
        entries.append(measure(figure, session, console))
        if path is not None:  # what there is, should it be stopped
            write(path, result)
    console.print(show(f"figures, {result['device']}", entries))
    if path is None and not options.names and not options.of_device:
        slug = re.sub(r"[^a-z0-9]+", "-", result["device"].lower()).strip("-")
        RESULTS.mkdir(parents=True, exist_ok=True)
        path = RESULTS / f"{result['date']}-{slug}.json"
        PAGES["figures"].update(result)
    if path is None:
        console.print("not written down: some figures only, and no --json FILE", highlight=False)
    else:
        write(path, result)
        console.print(f"written to {path}", highlight=False)
    return 0 if all_kept(entries) else 1


def command_words(options: argparse.Namespace) -> list[str]:
    of_device = ["--of-device"] if options.of_device else []
    return [*options.names, *of_device, *(["--json", str(options.json)] if options.json else [])]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
