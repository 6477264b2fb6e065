# SPDX-License-Identifier: Apache-2.0
"""`python -m bench.device_profile FILE`: measures this machine's GPU, and writes its profile.

The profile is fitted twice: from large kernels and copies alone, and then from a plain training step
(two layers of Llama-3-8B's shape), run here and dry.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import replace

from spillway.bench import programs
from spillway.bench.results import Measured, read
from spillway.commands.options import environment as emulated_environment
from spillway.demo.cli import Parser, output

from bench.device_profile import link, mapping
from bench.device_profile.document import Shares, toml
from bench.predictions import running
from bench.predictions.cases import Case
from bench.results import RunFailed

PROBE = ("-m", "bench.device_profile.probe")
STEP = ("plain", "--layers", "2")


def step_ms(profile: str, dry: bool) -> float:
    return running.run(Case("step", "llama_8b", STEP, profile), dry)["step_ms"]


def benched(group: str, filter: str, emulated: str | None) -> list[Measured]:
    env = dict(os.environ)
    if emulated:
        env = emulated_environment(True, emulated, preload=False, clock="virtual")
    [program] = programs.find([group])
    return read(programs.run(program, filter, env))


def main() -> int:
    parser = Parser(
        prog="device_profile", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=output, help="the profile, whose name ends in .toml")
    parser.add_argument("--json", type=output, help="what was measured")
    parser.add_argument("--dry-run", metavar="PROFILE", help="measure the emulated GPU of that profile")
    options = parser.parse_args()
    document, emulated = options.file, options.dry_run
    if document.suffix != ".toml":
        parser.error(f"{document}: expected a name that ends in .toml")
    prefix = ("-m", "spillway", "dry-run", emulated, "--", sys.executable)
    command = (sys.executable, *(prefix if emulated else ()), *PROBE)
    try:
        measured = {
            **running.measured("probe", command, os.environ),
            **link.of(benched("copy", link.FILTER, emulated)),
            **mapping.of(benched("alloc", mapping.FILTER, emulated)),
        }
        shares = Shares.of(measured)
        document.write_text(toml(measured, shares))
        took = step_ms(emulated or "", dry=bool(emulated))
        predicted = step_ms(str(document), dry=True)
        document.write_text(toml(measured, replace(shares, product=shares.product / 2)))
        fitted = shares.with_products_of_a_step(took, predicted, step_ms(str(document), dry=True))
    except (RunFailed, programs.BenchError, link.Disturbed) as failure:
        print(failure, file=sys.stderr)
        return 1
    said = (
        f"A plain step took {took:.1f} ms; with the products' share that was measured alone, "
        f"{shares.product:.4f},\nit is predicted to take {predicted:.1f} ms."
    )
    document.write_text(toml(measured, fitted, said))
    print(said.replace("\n", " "))
    if options.json is not None:
        found = {**measured, "step_ms": took, "predicted_ms": predicted, "product_share": fitted.product}
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
