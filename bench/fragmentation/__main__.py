# SPDX-License-Identifier: Apache-2.0
"""`python -m bench.fragmentation`: reserved over allocated memory, at their peaks, by trace and allocator."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from bench.fragmentation.run import ALLOCATORS, WORKLOADS, measure, record
from bench.results import RunFailed


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(prog="bench.fragmentation", description=__doc__, allow_abbrev=False)
    result.add_argument("names", nargs="*", metavar="NAME", help=f"which runs: {', '.join(WORKLOADS)} (all)")
    result.add_argument("--trace", type=Path, action="append", default=[], help="replay this file too")
    result.add_argument("--keep", type=Path, metavar="FOLDER", help="keep traces here, and use those there")
    result.add_argument("--allocator", action="append", choices=ALLOCATORS, help="which allocators (all)")
    result.add_argument("--scale", type=int, help="what sizes are multiplied by (to 4 GiB at the peak)")
    result.add_argument("--json", type=Path, metavar="FILE", help="write the results here too")
    return result


def main(arguments: list[str]) -> int:
    parse = parser()
    options = parse.parse_args(arguments)
    for name in options.names:
        if name not in WORKLOADS:
            parse.error(f"{name}: unknown run; known are {', '.join(WORKLOADS)}")
    allocators = options.allocator or list(ALLOCATORS)
    with tempfile.TemporaryDirectory() as folder:
        kept = options.keep or Path(folder)
        kept.mkdir(parents=True, exist_ok=True)
        paths = [] if options.trace and not options.names else [kept / n for n in options.names or WORKLOADS]
        results = {}
        print(f"emulated GPU{'':6}alloc. peak   scale  " + "".join(f"{name:>12}" for name in allocators))
        for path in [*paths, *options.trace]:
            if path in paths and not path.exists():
                record(path.name, path)
            result = results[path.name] = measure(path, allocators, options.scale)
            ratios = "".join(f"{result['reserved_over_allocated'][name]:12.4f}" for name in allocators)
            allocated = result["allocated_peak_bytes"] / 2**30
            print(f"{path.name:20}{allocated:6.2f} GiB  ×{result['scale']:<5}{ratios}", flush=True)
    if options.json:
        options.json.write_text(json.dumps({"device": "emulated GPU", "traces": results}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (RunFailed, ValueError) as failure:
        print(f"bench.fragmentation: {failure}", file=sys.stderr)
        sys.exit(1)
