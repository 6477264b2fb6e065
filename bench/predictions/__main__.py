# SPDX-License-Identifier: Apache-2.0
"""`python -m bench.predictions`: predicts again, or scores on a GPU what is written down."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from spillway import profiles
from spillway.demo.cli import Parser, output

from bench.pages import PAGES
from bench.predictions import ledger, running
from bench.predictions.cases import CASES, Case
from bench.results import GIB, RunFailed, header, write


def chosen(names: list[str]) -> list[Case]:
    return [case for case in CASES if not names or case.name in names]


def predict(cases: list[Case]) -> dict[str, Any]:
    """Those that run here, each in a process of its own; the others are listed on stderr."""
    found = {}
    for case in cases:
        reason = running.missing(case)
        if reason:
            print(f"{case.name}: left out: {reason}", file=sys.stderr)
            continue
        try:
            done = running.run(case, dry=True)
        except RunFailed as failure:
            print(failure, file=sys.stderr)
            continue
        wall, used = done["wall_seconds"], done["host_bytes"] / GIB
        print(
            f"{case.name}: {done['peak_bytes'] / GIB:.2f} GiB, {done['step_ms']} ms "
            f"(here {wall} s a step and {used:.2f} GiB)",
            flush=True,
        )
        found[case.name] = {
            "profile": case.profile,
            "command": list(case.command),
            **{name: done[name] for name in ledger.KEPT},
            "here": {name: done[name] for name in ledger.HERE},
        }
    return found


def score(cases: list[Case], dry: bool, path: Path | None = None) -> dict[str, Any]:
    """Runs what was predicted for this machine's GPU on it, and prints the errors of the predictions. Writes
    what there is after each case, should it be stopped."""
    import torch

    name = "" if dry else torch.cuda.get_device_name()
    predictions = ledger.read()["predictions"]
    rows = {}
    for case in cases:
        fits = dry or profiles.read(case.profile).name == name
        if case.name not in predictions or not fits or running.missing(case):
            continue
        try:
            found = running.run(case, dry)
        except RunFailed as failure:
            rows[case.name] = {"failed": str(failure)}
            print(failure, file=sys.stderr)
            continue
        said = predictions[case.name]
        errors = {
            "memory_error": round(ledger.error(said["peak_bytes"], found["peak_bytes"]), 3),
            "time_error": round(ledger.error(said["step_ms"], found["step_ms"]), 2),
        }
        rows[case.name] = {"measured": found, "predicted": said, **errors}
        print(
            f"{case.name}: memory {errors['memory_error']:+} %, time {errors['time_error']:+} %", flush=True
        )
        if path is not None:
            write(path, {"device": name or "emulated", "rows": rows})
    return {"device": name or "emulated", "rows": rows}


def predicted(names: list[str]) -> dict[str, Any]:
    """The whole ledger, those of `names` remade. Raises ValueError where nothing could be made."""
    found = predict(chosen(names))
    if not found:
        raise ValueError("no prediction was made")
    kept = ledger.read()["predictions"] if names and ledger.LEDGER.exists() else {}
    made = {**kept, **found}
    return {
        **header("emulated GPU", ["scripts/predictions", *names]),
        "cores": os.cpu_count(),
        "predictions": {case.name: made[case.name] for case in CASES if case.name in made},
    }


def main() -> int:
    parser = Parser(
        prog="predictions", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", choices=[[], *(case.name for case in CASES)])
    parser.add_argument(
        "--json", type=output, help="write what was found here, and leave the ledger as it is"
    )
    parser.add_argument("--score", action="store_true", help="on this machine's GPU")
    parser.add_argument("--dry-run", action="store_true", help="with --score: on the emulated GPU")
    options = parser.parse_args()
    if options.score:
        result = score(chosen(options.names), options.dry_run, options.json)
    else:
        result = predicted(options.names)
        print("\n".join(ledger.details(result)))
        if options.json is None:
            write(ledger.LEDGER, result)
            for name in ("predictions", "cases"):
                PAGES[name].update(result)
    if options.json is not None:
        write(options.json, result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
