# SPDX-License-Identifier: Apache-2.0
"""Real seconds of a dry run's steps: `dry_run_time.py MODEL SHARE`, plain and under a budget.

Prints the seconds of eight steps each. The budget has that share of what the blocks keep gone; its steps
include the one that is recorded and those in which the plan settles.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from contextlib import AbstractContextManager

import planning
import spillway
import torch

STEPS = 8


def seconds(step: planning.Step, region: AbstractContextManager) -> float:
    began = time.monotonic()  # the real time, in a dry run too
    for _ in range(STEPS):
        with region:
            loss = step.forward()
        loss.backward()
        del loss
        step.optimizer.step()
        step.optimizer.zero_grad()
    torch.cuda.synchronize()
    return time.monotonic() - began


def main(model: str, gone: str) -> None:
    spillway.use_allocator()
    step = planning.Step(model)
    peak = step.measured(contextlib.nullcontext())["peak"]
    plain = seconds(step, contextlib.nullcontext())
    region = spillway.offload(budget=peak - int(float(gone) * step.kept_by_blocks()), tag="timed")
    print(json.dumps({"plain": plain, "budget": seconds(step, region)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
