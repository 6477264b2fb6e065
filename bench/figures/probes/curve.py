# SPDX-License-Identifier: Apache-2.0
"""The curve from budget to time of a full-size model: `curve.py MODEL SHARE`, in a dry run.

Prints as JSON the time of a plain step, and what `spillway.explain` returns under a budget that excludes a
share of what the blocks keep.
"""

from __future__ import annotations

import contextlib
import json
import sys

import planning
import spillway


def main(model: str, gone: str) -> None:
    spillway.use_allocator()
    step = planning.Step(model)
    plain = step.measured(contextlib.nullcontext())
    region = spillway.offload(budget=plain["peak"] - int(float(gone) * step.kept_by_blocks()), tag="curve")
    measured = step.measured(region)
    explained = spillway.explain("curve", points=24)
    print(json.dumps({"plain": plain, "measured": measured, "explained": explained.as_dict()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
