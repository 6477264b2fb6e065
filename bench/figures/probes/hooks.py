# SPDX-License-Identifier: Apache-2.0
"""Time of a forward and backward pass per saved tensor: without hooks, in the engine, with a Python pair."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

import spillway
import torch

OPERATIONS = 400
ROUNDS = 60

spillway.use_allocator()
factor = torch.ones(2048, device="cuda", requires_grad=True)


def keep() -> AbstractContextManager:
    return spillway.CPUOffload(0.0, tag="probe")


def python_pair() -> AbstractContextManager:
    return torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor)


def once(region: Callable[[], AbstractContextManager]) -> float:
    """Nanoseconds per operation, each of which saves its one input."""
    begun = time.perf_counter_ns()
    with region():
        value = factor
        for _ in range(OPERATIONS):
            value = value.sin()
    value.backward(factor.detach())
    factor.grad = None
    return (time.perf_counter_ns() - begun) / OPERATIONS


arms = {"none": contextlib.nullcontext, "engine": keep, "python": python_pair}
times = {name: [] for name in arms}
for _ in range(ROUNDS):  # the arms take turns, so that drift meets all of them
    for name, region in arms.items():
        times[name].append(once(region))
print(json.dumps({name: min(values) for name, values in times.items()}))
