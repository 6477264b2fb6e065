# SPDX-License-Identifier: Apache-2.0
"""How large a batch fits, and how fast it is, in a dry run: `capacity.py plain|checkpoint|ours MOST`.

Llama-3-8B's shape with 32 layers, sequences of 4096 tokens, bfloat16, AdamW. Prints as JSON the tokens per
second of each batch up to the first that does not fit.
"""

from __future__ import annotations

import contextlib
import json
import sys

import planning
import spillway
import torch

SEQUENCE = 4096


def tokens_per_second(way: str, batch: int) -> float:
    step = planning.Step("llama-8b", batch)
    if way == "ours":
        found = step.measured(spillway.offload(budget="auto", tag=f"batch-{batch}"))
    else:
        found = step.measured(contextlib.nullcontext(), step.checkpointed if way == "checkpoint" else None)
    return batch * SEQUENCE / found["ms"] * 1e3


def main(way: str, most: str) -> None:
    if way == "ours":
        spillway.use_allocator()
    rates: dict[int, float] = {}
    for batch in range(1, int(most) + 1):
        try:
            rates[batch] = tokens_per_second(way, batch)
        except (torch.OutOfMemoryError, spillway.BudgetError):
            break
        torch.cuda.empty_cache()
    print(json.dumps(rates))


if __name__ == "__main__":
    main(*sys.argv[1:])
