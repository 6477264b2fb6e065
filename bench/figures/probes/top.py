# SPDX-License-Identifier: Apache-2.0
"""What the statistics page of `spillway top` costs a training step of the demonstration that moves half of
what it saves: the parts that the page adds are timed by themselves, because a step's time wanders by more."""

from __future__ import annotations

import json
import os
import time
import timeit

import spillway
import torch
from spillway._load import glue
from spillway.demo.model import SIZES, Batches, Gpt
from spillway.top import pages

STEPS = 5

spillway.use_allocator()
torch.manual_seed(0)
size = SIZES["demo"]
model = Gpt(size).cuda()
optimizer = torch.optim.AdamW(model.parameters())
batches = Batches(bytes(range(256)) * 64, size, 0)


def step() -> None:
    tokens, targets = batches.at(0, "cuda")
    with spillway.CPUOffload(0.5, tag="job"):
        loss = model(tokens, targets)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def counts() -> tuple[int, int]:
    device = spillway.stats()["devices"][0]
    return device["heap"]["allocations"], device["residency"]["stashes"]


def allocate() -> None:
    torch.empty(1 << 20, device="cuda")


def nanoseconds(function, number: int) -> float:
    timer = timeit.Timer(function, timer=time.process_time)
    return min(timer.repeat(30, number)) / number * 1e9


def costs() -> dict[str, float]:
    return {"step": nanoseconds(glue().end_step, 200), "allocation": nanoseconds(allocate, 2000)}


for _ in range(2):
    step()
torch.cuda.synchronize()
before, begun = counts(), time.perf_counter_ns()
for _ in range(STEPS):
    step()
torch.cuda.synchronize()
taken = (time.perf_counter_ns() - begun) / STEPS
allocations, moves = ((now - then) / STEPS for now, then in zip(counts(), before, strict=True))

off = costs()
page = pages.path_of(os.getpid())
glue().start_run_log("", "{}", str(page))
on = costs()
glue().stop_run_log()
found = {"nanoseconds": taken, "allocations": allocations, "moves": moves}
print(json.dumps(found | {name: on[name] - off[name] for name in on}))
