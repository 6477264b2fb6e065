# SPDX-License-Identifier: Apache-2.0
"""The options of the demonstration, and its run."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import re
import sys
from pathlib import Path
from typing import Any, NoReturn

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from spillway import launch
from spillway.demo import compare, data, picture, table
from spillway.demo.config import SIZE_NAMES, VariantConfig
from spillway.demo.device import why_no_gpu


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Prints one line and exits with status 2."""
        option = re.sub(r"^argument (--[a-z]+): (\S+: )", r"\1=\2", message).removeprefix("argument ")
        self.exit(2, f"{self.prog}: {option}\n")


def ratio(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= 1.0:
        raise argparse.ArgumentTypeError(f"{text}: expected a number from 0 to 1, such as 0.5")
    return value


def steps(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= 100_000):
        raise argparse.ArgumentTypeError(f"{text}: expected an integer from 1 to 100000")
    return int(text)


def output(text: str) -> Path:
    path = Path(text)
    if os.path.isdir(path) or not os.path.isdir(path.parent):
        raise argparse.ArgumentTypeError(f"{text}: expected a file name in an existing folder")
    return path


def parser() -> argparse.ArgumentParser:
    result = Parser(
        prog="demo",
        allow_abbrev=False,
        description="Trains the same model plain and with its saved activations on the host, and compares.",
    )
    result.add_argument(
        "--steps", type=steps, default=8, metavar="N", help="training steps of each variant (8)"
    )
    result.add_argument(
        "--ratio", type=ratio, default=0.5, metavar="R", help="share to offload in the middle variant (0.5)"
    )
    result.add_argument(
        "--data", type=Path, metavar="FILE", help="text to train on (Python's standard library)"
    )
    result.add_argument("--allocator", choices=("spillway", "torch"), default="spillway")
    result.add_argument("--device", choices=("auto", "cuda", "emulated"), default="auto")
    result.add_argument("--size", choices=SIZE_NAMES, default="demo", help="small: a quick check")
    result.add_argument("--json", type=output, metavar="FILE", help="write the comparison here")
    result.add_argument(
        "--picture", type=output, metavar="FILE", help="write the picture of device memory here (PNG)"
    )
    return result


def run_variants(config: VariantConfig, ratios: list[float | None], console: Console) -> list[dict[str, Any]]:
    columns = (TextColumn("{task.description:<10}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    results = []
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("plain", total=config.steps * len(ratios))
        for share in ratios:
            progress.update(task, description=compare.name(share))
            variant = dataclasses.replace(config, ratio=share)
            results.append(compare.run_variant(variant, lambda _step: progress.advance(task)))
    return results


def main(arguments: list[str]) -> int:
    parse = parser()
    options = parse.parse_args(arguments)
    bad_data = data.problem(options.data) if options.data else None
    if bad_data:
        parse.error(bad_data)
    device = options.device
    no_gpu = why_no_gpu()
    if device == "cuda" and no_gpu:
        parse.error(f"--device=cuda: no GPU was found ({no_gpu}). Use --device=emulated.")
    if device == "auto":
        device = "emulated" if no_gpu else "cuda"
    if device == "emulated":
        try:
            launch.environment(True)
        except launch.LaunchError as problem:
            parse.error(str(problem))
    path = None if options.data is None else str(options.data.resolve())
    config = VariantConfig(None, options.allocator, device, options.steps, 1, options.size, path)
    console = Console()
    console.print(f"Training on the {'emulated GPU' if device == 'emulated' else 'GPU'}", highlight=False)
    ratios = [None, *sorted({options.ratio, 1.0})]
    try:
        results = run_variants(config, ratios, console)
    except compare.VariantFailed as failure:
        print(f"demo: {failure}", file=sys.stderr)
        return 1
    document = compare.document(config, results, ["demo", *arguments])
    table.show(document, console)
    if options.picture:
        picture.draw(document, options.picture)
        console.print(f"Device memory over one step: {options.picture}", highlight=False)
    if options.json:
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    equal = all(
        variant["losses_equal_plain"] and variant["grads_equal_plain"] for variant in document["variants"]
    )
    if not equal:
        print(
            "demo: losses or gradients differ from those of the plain variant. Report this as a bug.",
            file=sys.stderr,
        )
    return 0 if equal else 1
