# SPDX-License-Identifier: Apache-2.0
"""Time of a forward and backward pass per saved tensor: without hooks, in the engine, with a Python pair.

CPU time of the whole process (backward runs on a thread of its own), so that a busy machine changes little.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from statistics import median

import spillway
import torch

OPERATIONS = 400
ROUNDS = 150

torch.set_num_threads(1)
spillway.use_allocator()
factor = torch.ones(256, device="cuda", requires_grad=True)


def keep() -> AbstractContextManager:
    return spillway.CPUOffload(0.0, tag="probe")


def move() -> AbstractContextManager:
    return spillway.CPUOffload(1.0, tag="probe of moving")


def save_on_cpu() -> AbstractContextManager:
    return torch.autograd.graph.save_on_cpu(pin_memory=True)


def python_pair() -> AbstractContextManager:
    return torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor)


def once(region: Callable[[], AbstractContextManager]) -> float:
    """Nanoseconds per operation, each of which saves its one input."""
    begun = time.process_time_ns()
    with region():
        value = factor
        for _ in range(OPERATIONS):
            value = value.sin()
    value.backward(factor.detach())
    factor.grad = None
    return (time.process_time_ns() - begun) / OPERATIONS


variants = {
    "none": contextlib.nullcontext,
    "keep": keep,
    "python": python_pair,
    "move": move,
    "save_on_cpu": save_on_cpu,
}
times = {name: [] for name in variants}
for _ in range(ROUNDS):  # the variants take turns, so that drift meets all of them
    for name, region in variants.items():
        times[name].append(once(region))
print(json.dumps({name: median(values) for name, values in times.items()}))
