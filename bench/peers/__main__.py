# SPDX-License-Identifier: Apache-2.0
"""`python -m bench.peers`: runs the probes, prints what they found, and writes it down."""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from spillway import launch
from spillway.demo.cli import Parser, output

from bench.peers import budgets, claims, page, tables

ROOT = Path(__file__).parents[2]
INSTANT_DRIVER = ROOT / "build" / "release" / "bench" / "libinstant_driver.so"
ALLOCATORS = ("torch", "spillway")
PROCESSES = 7
# Whose, over whose allocator, in how many slices.
SEQUENTIAL = (
    ("plain", "torch", "4"),
    ("theirs", "torch", "4"),
    ("ours", "torch", "4"),
    ("ours", "spillway", "4"),
    ("ours", "spillway", "8"),
)
PACKAGES = ("torchtune", "trl", "fairscale")


class ProbeFailed(Exception):
    """The message has the program's last lines."""


def probe(name: str, *arguments: str, instant: bool = False) -> Any:
    """The JSON that probes/NAME.py prints, on the emulated GPU; `instant`: its copies take no time."""
    command = [sys.executable, "-m", f"bench.peers.probes.{name}", *arguments]
    environment = launch.environment(True)
    if instant:
        environment["LD_PRELOAD"] = f"{INSTANT_DRIVER}:{environment['LD_PRELOAD']}"
    done = subprocess.run(
        command,
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        tail = (done.stdout + done.stderr).strip().splitlines()[-4:]
        raise ProbeFailed("\n".join([f"{' '.join(command[2:])} ended with status {done.returncode}:", *tail]))
    return json.loads(done.stdout.splitlines()[-1])


def attempt(name: str, *arguments: str) -> Any:
    """As probe; what went wrong, by name: the other systems are measured although one fails."""
    try:
        return probe(name, *arguments)
    except ProbeFailed as failure:
        return {"failed": str(failure)}


def costs_of_hooks(allocator: str) -> dict[str, float]:
    """By variant, the median over several processes: the addresses of a process's memory matter as much as
    the measured code."""
    runs = [probe("hooks", allocator, instant=True) for _ in range(PROCESSES)]
    return {variant: median(run[variant] for run in runs) for variant in runs[0]}


def version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def measure(console: Console) -> dict[str, Any]:
    def saying(what: str) -> None:
        console.print(f"measuring {what}", highlight=False)

    saying("which systems are here")
    missing = probe("imports")
    found: dict[str, Any] = {"missing": missing}
    saying("costs per saved tensor")
    found["hooks"] = {allocator: costs_of_hooks(allocator) for allocator in ALLOCATORS}
    saying("device memory and copied bytes")
    found["memory"] = {allocator: probe("memory", allocator) for allocator in ALLOCATORS}
    saying("a model in parts")
    found["sequential"] = {
        activations: {
            f"{whose}, {allocator}, {slices}": attempt("sequential", allocator, whose, activations, slices)
            for whose, allocator, slices in SEQUENTIAL
            if not (whose == "theirs" and missing["fairscale"])
        }
        for activations in ("checkpoint", "keep")
    }
    saying("training steps under budgets, and batches that fit")
    found["budgets"] = budgets.measure(missing)
    return found


def document(found: dict[str, Any], checked: list[dict[str, Any]], command: list[str]) -> dict[str, Any]:
    return {
        "date": datetime.date.today().isoformat(),
        "device": "emulated GPU",
        "versions": {
            **{name: version(name) for name in ("spillway", "torch", *PACKAGES)},
            "python": platform.python_version(),
        },
        "command": command,
        "claims": checked,
        **found,
    }


def main(arguments: list[str]) -> int:
    parser = Parser(prog="peers", description=__doc__, allow_abbrev=False)
    parser.add_argument("--json", type=output, metavar="FILE", help="write here instead of bench/results")
    options: argparse.Namespace = parser.parse_args(arguments)
    console = Console()
    found = measure(console)
    checked = claims.check(found)
    result = document(found, checked, ["scripts/peers"])
    tables.show(result, console)
    path = options.json or ROOT / "bench" / "results" / f"{result['date']}-peers.json"
    path.write_text(json.dumps(result, indent=1) + "\n")
    if options.json is None:
        page.update(result)
    console.print(f"written to {path}", highlight=False)
    return 0 if all(claim["holds"] for claim in checked) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
