# SPDX-License-Identifier: Apache-2.0
"""`python -m bench.peers`: runs the probes, prints what they found, and writes it down."""

from __future__ import annotations

import argparse
import sys
from statistics import median
from typing import Any

from rich.console import Console
from spillway import launch
from spillway.demo.cli import Parser, output

from bench.figures.registry import all_kept
from bench.pages import PAGES
from bench.peers import budgets, claims, model_state, model_state_page, tables
from bench.results import RESULTS, ROOT, RunFailed, header, last_json, output_of, write

INSTANT_DRIVER = ROOT / "build" / "release" / "bench" / "libinstant_driver.so"
ALLOCATORS = ("torch", "spillway")
PROCESSES = 7
# Whose, over whose allocator, in how many slices.
SEQUENTIAL = (
    ("plain", "torch", "4"),
    ("theirs", "torch", "4"),
    ("ours", "spillway", "4"),
    ("ours", "spillway", "8"),
)
PACKAGES = ("torchtune", "trl", "fairscale")


def probe(name: str, *arguments: str, instant: bool = False) -> Any:
    """The JSON that probes/NAME.py prints, on the emulated GPU; `instant`: its copies take no time."""
    environment = launch.environment(True)
    if instant:
        environment["LD_PRELOAD"] = f"{INSTANT_DRIVER}:{environment['LD_PRELOAD']}"
    command = [sys.executable, "-m", f"bench.peers.probes.{name}", *arguments]
    return last_json(output_of(command, environment, tail=4))


def attempt(name: str, *arguments: str) -> Any:
    """As probe; what went wrong, by name: the other systems are measured although one fails."""
    try:
        return probe(name, *arguments)
    except RunFailed as failure:
        return {"failed": str(failure)}


def costs_of_hooks(allocator: str) -> dict[str, float]:
    """By variant, the median over several processes: the addresses of a process's memory matter as much as
    the measured code."""
    runs = [probe("hooks", allocator, instant=True) for _ in range(PROCESSES)]
    return {variant: median(run[variant] for run in runs) for variant in runs[0]}


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


def activations(console: Console, command: list[str]) -> dict[str, Any]:
    found = measure(console)
    return {**header("emulated GPU", command, *PACKAGES), "claims": claims.check(found), **found}


def states(console: Console, command: list[str]) -> dict[str, Any]:
    console.print("measuring ways to train with model state on the host", highlight=False)
    found = model_state.measure()
    versions = header("emulated GPU and dry runs", command, *model_state_page.PACKAGES)
    return {**versions, "claims": list(claims.of_model_state(found)), **found}


#: By its name: what measures it, what prints it, and its page, whose name follows the date in its document's.
PARTS = {
    "activations": (activations, tables.show, "peers"),
    "model-state": (states, tables.show_state, "peers-state"),
}


def main(arguments: list[str]) -> int:
    parser = Parser(prog="peers", description=__doc__, allow_abbrev=False)
    parser.add_argument("--only", choices=PARTS, help="measure this part; default: both")
    parser.add_argument("--json", type=output, metavar="FILE", help="write here instead of bench/results")
    options: argparse.Namespace = parser.parse_args(arguments)
    console = Console()
    command = ["scripts/peers", *(["--only", options.only] if options.only else [])]
    kept, whole = True, {}
    for part in [options.only] if options.only else PARTS:
        measured, show, page = PARTS[part]
        result = measured(console, command)
        kept = kept and all_kept(result["claims"])
        if options.json is None:
            path = RESULTS / f"{result['date']}-{page}.json"
            write(path, result)
            PAGES[page].update(result)
            console.print(f"written to {path}", highlight=False)
        else:
            whole[part] = result
        show(result, console)
    if options.json is not None:
        write(options.json, whole[options.only] if options.only else whole)
        console.print(f"written to {options.json}", highlight=False)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
