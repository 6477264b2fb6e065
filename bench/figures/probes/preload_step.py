# SPDX-License-Identifier: Apache-2.0
"""How many calls the preload library sees in a training step of the demonstration, and how long a step
takes on this device. Runs with the library preloaded. On the emulated GPU kernels are no calls: they count
apart, and in a dry run the step's time is modeled."""

from __future__ import annotations

import ctypes
import json
import tempfile
import time
from pathlib import Path

import torch
from spillway.demo.model import SIZES, Batches, Gpt
from spillway.preload_trace import read_preload_trace

STEPS = 5

process = ctypes.CDLL(None)
if hasattr(process, "spillway_emulator_count"):
    process.spillway_emulator_count.restype = ctypes.c_uint64
torch.manual_seed(0)
size = SIZES["demo"]
model = Gpt(size).cuda()
optimizer = torch.optim.AdamW(model.parameters())
batches = Batches(bytes(range(256)) * 64, size, 0)


def kernels() -> int:
    return process.spillway_emulator_count(b"kernels") if hasattr(process, "spillway_emulator_count") else 0


def step() -> None:
    tokens, targets = batches.at(0, "cuda")
    model(tokens, targets).backward()
    optimizer.step()
    optimizer.zero_grad()


step()
torch.cuda.synchronize()
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "trace"
    if process.spillway_preload_trace_begin(str(path).encode()) != 0:
        raise SystemExit("no trace could be begun: is the preload library there?")
    launched, begun = kernels(), time.perf_counter_ns()
    for _ in range(STEPS):
        step()
    torch.cuda.synchronize()
    taken = time.perf_counter_ns() - begun
    process.spillway_preload_trace_end()
    calls = len(read_preload_trace(path).calls)
    launched = kernels() - launched
print(json.dumps({"calls": calls / STEPS, "kernels": launched / STEPS, "nanoseconds": taken / STEPS}))
