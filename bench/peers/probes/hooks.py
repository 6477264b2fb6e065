# SPDX-License-Identifier: Apache-2.0
"""CPU time per saved tensor (pack and unpack): Spillway's engine, empty Python hooks, other systems.

Takes the allocator: `spillway` or `torch`. Measures CPU time of the whole process, because autograd runs
backward passes on another thread. Rounds run each variant once, and each begins with another variant. The
time without hooks, measured just before and after a variant, is subtracted. A variant runs several steps in
one manager, as jobs do. Its first step is not counted: memory and caches are those of the variant before.
Python's collector runs between steps, not in them.
"""

from __future__ import annotations

import contextlib
import gc
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from statistics import median

import spillway
import torch

from bench.peers import systems

OPERATIONS = 400
ROUNDS = 8
STEPS = 4
ELEMENTS = 1024  # 4 KiB: the copy itself takes about no time
LARGE = 8192  # bytes, more than a tensor has

torch.set_num_threads(1)
if sys.argv[1] == "spillway":
    spillway.use_allocator()
factor = torch.ones(ELEMENTS, device="cuda", requires_grad=True)
gradient = torch.ones(ELEMENTS, device="cuda")

Region = Callable[[], AbstractContextManager]


def same_each_time(manager: AbstractContextManager) -> Region:
    """As trainers do: one manager, entered in each step."""
    return lambda: manager


def variants() -> dict[str, Region]:
    found: dict[str, Region] = {
        "empty pair": lambda: torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x),
        "stay: Spillway, ratio 0": same_each_time(spillway.CPUOffload(0.0, tag="stay")),
        "stay: Spillway, below the size": same_each_time(
            spillway.compat.OffloadActivations(min_offload_size=LARGE)
        ),
        "stay: Spillway, NoOpManager": same_each_time(spillway.compat.NoOpManager()),
        "move: Spillway, CPUOffload(1)": same_each_time(spillway.CPUOffload(1.0, tag="move")),
        "move: Spillway, OffloadActivations": same_each_time(spillway.compat.OffloadActivations()),
        "move: PyTorch's save_on_cpu": lambda: torch.autograd.graph.save_on_cpu(pin_memory=True),
    }
    for name in ("torchtune", "trl"):
        module = systems.ALL[name]().module
        if module is not None:
            found[f"stay: {name}, below the size"] = same_each_time(
                module.OffloadActivations(min_offload_size=LARGE)
            )
            found[f"move: {name}"] = same_each_time(module.OffloadActivations())
    return found


def once(region: Region) -> float:
    """Nanoseconds per operation, each of which saves its one input."""
    gc.collect()
    torch.cuda.synchronize()
    begun = time.process_time_ns()
    with region():
        value = factor * 1
        for _ in range(OPERATIONS):
            value = value.abs()
    value.backward(gradient)
    spent = time.process_time_ns() - begun
    factor.grad = None
    return spent / OPERATIONS


def turn(region: Region) -> float:
    """The same, of steps that follow each other."""
    return median([once(region) for _ in range(STEPS)][1:])


chosen = variants()
for region in chosen.values():
    once(region)  # what only the first time takes
gc.freeze()
gc.disable()
times: dict[str, list[float]] = {name: [] for name in chosen}
turns = list(chosen)
before = turn(contextlib.nullcontext)
for number in range(ROUNDS):
    first = number % len(turns)
    for name in turns[first:] + turns[:first]:
        spent, after = turn(chosen[name]), turn(contextlib.nullcontext)
        times[name].append(spent - (before + after) / 2)
        before = after
systems.report({name: median(values) for name, values in times.items()})
