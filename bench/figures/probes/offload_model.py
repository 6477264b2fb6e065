# SPDX-License-Identifier: Apache-2.0
"""What a model in parts moves in a training step, and its peak of device memory beside the plain model."""

from __future__ import annotations

import copy
import gc
import json

import spillway
import torch
from torch import nn

LAYERS, WIDTH, ROWS = 12, 512, 20

spillway.use_allocator()


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    model(torch.ones(ROWS, WIDTH, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def peak(model: nn.Module) -> int:
    """The most bytes on the device in a step of a model that is already there or in parts."""
    optimizer = torch.optim.AdamW(model.parameters())
    step(model, optimizer)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    step(model, optimizer)
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated()


def in_parts(layers: nn.Sequential, pieces: int = 1, checkpoint: bool = True) -> dict[str, int]:
    model = spillway.OffloadModel(
        copy.deepcopy(layers),
        "cuda",
        num_slices=LAYERS,
        checkpoint_activation=checkpoint,
        num_microbatches=pieces,
    )
    most = peak(model)
    before = model.stats()
    step(model, torch.optim.SGD(model.parameters()))
    moved = {name: value - before[name] for name, value in model.stats().items() if name.endswith("_bytes")}
    return {
        "weights_in": moved["loaded_bytes"],
        "gradients_out": moved["gradient_bytes"],
        "slots": before["slot_bytes"],
        "peak": most,
    }


def main() -> dict[str, dict[str, int]]:
    torch.manual_seed(0)
    layers = nn.Sequential(*(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU()) for _ in range(LAYERS)))
    # The matrix library takes its workspace at its first use.
    nn.Linear(8, 8, device="cuda")(torch.ones(8, 8, device="cuda")).sum().backward()
    gc.collect()
    workspace = torch.cuda.memory_allocated()
    results = {
        "one": in_parts(layers),
        "five": in_parts(layers, pieces=5),
        "kept": in_parts(layers, checkpoint=False),
    }
    gc.collect()
    results["plain"] = {"peak": peak(layers.cuda()), "weights": sum(p.nbytes for p in layers.parameters())}
    for result in results.values():
        result["peak"] -= workspace
    return results


print(json.dumps(main()))
