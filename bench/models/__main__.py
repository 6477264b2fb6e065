# SPDX-License-Identifier: Apache-2.0
"""`python -m bench.models`: trains in dry runs, prints what was found, and writes it down."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from rich.console import Console
from spillway import profiles
from spillway.demo.cli import Parser, output

from bench.models import page
from bench.models.running import MODELS, PRECISIONS, PROFILES, Loop
from bench.pages import PAGES
from bench.results import RESULTS, header, write


def model(given: str) -> str:
    if given not in MODELS:
        raise argparse.ArgumentTypeError(f"{given}: expected {', '.join(MODELS)}")
    return given


def profile(given: str) -> str:
    try:
        profiles.read(given)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return given


def measure(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """By profile, precision and model."""
    measured: dict[str, Any] = {}
    for gpu in options.profile or PROFILES:
        for precision in options.precision or PRECISIONS:
            found = measured.setdefault(gpu, {}).setdefault(precision, {})
            for name in options.models or MODELS:
                found[name] = Loop(name, precision, gpu).measure()
                console.print(f"{gpu}, {precision}: {', '.join(*page.rows({name: found[name]}))}")
    return measured


def main(arguments: list[str]) -> int:
    parser = Parser(prog="models", description=__doc__, allow_abbrev=False)
    parser.add_argument("models", nargs="*", metavar="MODEL", type=model, help="default: all")
    parser.add_argument(
        "--profile",
        action="append",
        metavar="NAME",
        type=profile,
        help="of `spillway profiles`; default: h200, rtx4090",
    )
    parser.add_argument("--precision", action="append", choices=PRECISIONS, help="default: both")
    parser.add_argument("--json", type=output, metavar="FILE", help="write here instead of bench/results")
    options = parser.parse_args(arguments)
    console = Console(highlight=False, soft_wrap=True)
    packages = header("dry runs", ["scripts/models", *arguments], *page.PACKAGES)
    result = {**packages, "profiles": measure(options, console)}
    path = options.json or RESULTS / f"{result['date']}-models.json"
    write(path, result)
    if options.json is None:
        PAGES["models"].update(result)
    console.print("\n".join(page.lines(result)), f"written to {path}", sep="\n", markup=False)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
