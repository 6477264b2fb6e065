# SPDX-License-Identifier: Apache-2.0
"""In a dry run, calls to the driver that create and map memory cost the host time by the profile."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from conftest import spillway

# Steps whose last one needs memory of another size. Of each: its time, the calls in it, and the bytes that it
# reserved.
STEPS = """
import ctypes, json, time
import torch

count = ctypes.CDLL(None).spillway_emulator_count
count.restype = ctypes.c_uint64
CALLS = ("cuMemCreate", "cuMemMap", "cuMemUnmap", "cuMemAlloc")
steps = []
for size in (1 << 28, 1 << 28, 1 << 29):
    counts = [count(call.encode()) for call in CALLS]
    reserved, at = torch.cuda.memory_reserved(), time.perf_counter()
    torch.empty(size, dtype=torch.uint8, device="cuda")
    took = time.perf_counter() - at
    calls = [count(call.encode()) - before for call, before in zip(CALLS, counts)]
    steps.append((took, *calls, torch.cuda.memory_reserved() - reserved))
print(json.dumps(steps))
"""
COSTS = {"create": 1e-3, "map": 2e-3, "access": 4e-3, "unmap": 8e-3, "release": 16e-3}
COSTS |= {"create_rate": 1e9, "release_rate": 1e9}
FREE = {name: 1e18 if name.endswith("rate") else 0.0 for name in COSTS}


def printed_by(job: str, costs: dict[str, float], *options: str) -> Any:
    rates = ",".join(f"{name}={cost}" for name, cost in costs.items())
    done = spillway("dry-run", "h200", *options, "--rates", rates, "--", sys.executable, "-c", job)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[0])


@pytest.mark.parametrize("options", [(), ("--ratio", "0")], ids=["torch's allocator", "the heap"])
def test_step_that_needs_new_memory_takes_as_much_longer_as_its_calls_cost(options: tuple[str, ...]) -> None:
    without, with_costs = printed_by(STEPS, FREE, *options), printed_by(STEPS, COSTS, *options)
    chunks = []
    for (base, *counts), (took, *others) in zip(without, with_costs, strict=True):
        assert counts == others
        created, mapped, unmapped, allocated, reserved = counts
        assert unmapped == 0
        calls = (created + allocated) * COSTS["create"]
        calls += (mapped + allocated) * (COSTS["map"] + COSTS["access"])
        assert took - base == pytest.approx(calls + reserved / COSTS["create_rate"], abs=1e-9)
        chunks.append(mapped + allocated)
    assert chunks[0] > 0 and chunks[1] == 0 and chunks[2] > 0


# Training steps that repeat, so that their addresses are planned. Of each: the calls of cuMemMap, the
# replayed allocations so far, and the bytes reserved.
PLANNED = """
import ctypes, json
import spillway, torch

count = ctypes.CDLL(None).spillway_emulator_count
count.restype = ctypes.c_uint64
spillway.use_allocator()
model = torch.nn.Linear(4096, 4096, device="cuda")
optimizer = torch.optim.SGD(model.parameters())
steps = []
for _ in range(5):
    before = count(b"cuMemMap")
    model(torch.empty(1 << 18, 4096, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    replayed = spillway.stats()["devices"][0]["heap"]["replayed_allocations"]
    steps.append((count(b"cuMemMap") - before, replayed, torch.cuda.memory_reserved()))
print(json.dumps(steps))
"""


def test_planned_addresses_are_mapped_in_large_chunks() -> None:
    job = (sys.executable, "-c", PLANNED)
    done = spillway("dry-run", "h200", "--", *job, SPILLWAY_PLAN_REPLAY="1")
    assert done.returncode == 0, done.stderr
    steps = json.loads(done.stdout.splitlines()[0])
    mapped, replayed, reserved = zip(*steps, strict=True)
    assert replayed[-1] > replayed[-2] > 0
    assert reserved[-1] > 8 << 30
    assert sum(mapped[2:]) < reserved[-1] / (16 << 20)


# What the first plan of a region in half of the memory that it needs is predicted to take.
PREDICTED = """
import json
import spillway, torch

spillway.use_allocator()
with torch.device("cuda"):
    layers = [torch.nn.TransformerEncoderLayer(1024, 16, batch_first=True) for _ in range(4)]
    net = torch.nn.Sequential(*layers)
    x = torch.zeros(32, 197, 1024, requires_grad=True)
optimizer = torch.optim.SGD(net.parameters())
region = spillway.offload(budget=2 << 30, tag="mapped")
for _ in range(4):
    with region:
        loss = net(x).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(json.dumps(spillway.explain("mapped").chosen.seconds))
"""


def test_times_that_plans_are_made_from_have_no_mapping_in_them() -> None:
    assert printed_by(PREDICTED, COSTS) == pytest.approx(printed_by(PREDICTED, FREE), rel=0.05)


# Steps of four micro-batches of a model whose parameters and gradients (1.2 GiB) have no room together.
# Of each: calls of cuMemMap, and the bytes that it fetched.
STREAMED = """
import ctypes, json
import spillway, torch
from torch import nn

count = ctypes.CDLL(None).spillway_emulator_count
count.restype = ctypes.c_uint64


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 3 * width, bias=False)
        self.down = nn.Linear(3 * width, width, bias=False)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


with torch.device("cuda"):
    model = nn.Sequential(*(Block(1024) for _ in range(24)), nn.Linear(1024, 1024))
optimizer = torch.optim.AdamW(model.parameters())
steps = []
for _ in range(6):
    fetched = spillway.stats()["model_state"]["fetched_bytes"]
    for _ in range(4):
        model(torch.empty(8192, 1024, device="cuda")).sum().backward()
    passes = spillway.stats()["model_state"]["fetched_bytes"]
    before = count(b"cuMemMap")
    optimizer.step()
    optimizer.zero_grad()
    now = spillway.stats()["model_state"]["fetched_bytes"]
    steps.append((count(b"cuMemMap") - before, now - passes, now - fetched))
print(json.dumps(steps))
"""


def test_model_state_that_streams_is_fetched_into_memory_that_is_mapped() -> None:
    done = spillway("dry-run", "h200", "--budget", "1100MiB", "--", sys.executable, "-c", STREAMED)
    assert done.returncode == 0, done.stderr
    mapped, between, fetched = zip(*json.loads(done.stdout.splitlines()[0])[2:], strict=True)
    chunk = 2 << 20  # at most, with this budget
    # In passes the memory of activations moves too, without a wait.
    assert sum(mapped) * chunk < sum(between) / 8
    weights = 610 << 20
    # Of each pass: all weights twice, and the gradients; then the states of AdamW.
    assert 2 * weights < min(fetched) and max(fetched) < 4 * 3 * weights + 2 * weights
