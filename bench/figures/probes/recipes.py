# SPDX-License-Identifier: Apache-2.0
"""Host time of recomputing a tensor, beyond that of running its operator once more.

In nanoseconds of the process's CPU time (backward runs on a thread of its own): `keep` where the engine keeps
all saved tensors, `recompute` where one of each branch is released and recomputed, `more` the difference of
the two, round by round, `operator` of the operator alone.
"""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from statistics import median

import spillway
import torch
from torch.nn import functional as F

BRANCHES = 200
ROUNDS = 200

torch.set_num_threads(1)
spillway.use_allocator()
x = torch.randn(256, device="cuda", requires_grad=True)
factor = torch.randn(256, device="cuda")
gradient = torch.ones(256, device="cuda")


def trained(region: Callable[[], AbstractContextManager]) -> float:
    """By branch: its product saves what SiLU gives, which can be had again from x."""
    begun = time.process_time_ns()
    with region():
        products = [F.silu(x) * factor.requires_grad_() for _ in range(BRANCHES)]
    torch.autograd.backward(products, [gradient] * BRANCHES)
    x.grad = factor.grad = None
    return (time.process_time_ns() - begun) / BRANCHES


def operators() -> float:
    """Without a graph, and with as little of Python as there can be."""
    begun = time.process_time_ns()
    silu = torch._C._nn.silu
    with torch.no_grad():
        for _ in range(BRANCHES):
            silu(x)
    return (time.process_time_ns() - begun) / BRANCHES


variants = {
    "keep": lambda: trained(lambda: spillway.CPUOffload(0, tag="keep")),
    "recompute": lambda: trained(spillway.recompute),
    "operator": operators,
}
for variant in variants.values():
    variant()  # what only the first time takes
gc.freeze()
gc.disable()  # there are no cycles, and collections would fall into any of the variants
times = {name: [] for name in variants}
for _ in range(ROUNDS):  # the variants take turns, so that drift meets all of them
    for name, variant in variants.items():
        times[name].append(variant())
last = spillway.stats()["tags"]["recompute"]["last"]
assert last["recomputed_bytes"] == last["left_to_recompute_bytes"] == BRANCHES * x.nbytes, last
pairs = zip(times["recompute"], times["keep"], strict=True)
found = {name: median(values) for name, values in times.items()}
print(json.dumps({**found, "more": median(recompute - keep for recompute, keep in pairs)}))
