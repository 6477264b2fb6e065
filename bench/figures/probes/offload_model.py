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


def backward(model: nn.Module) -> None:
    model(torch.ones(ROWS, WIDTH, device="cuda")).square().mean().backward()


def peaks(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, int]:
    """The most bytes on the device in the passes and in the step of a model, once states exist."""
    found = {}
    for _ in range(2):
        for name, run in (("passes", lambda: backward(model)), ("step", optimizer.step)):
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            run()
            torch.cuda.synchronize()
            found[f"peak_{name}"] = torch.cuda.max_memory_allocated()
        optimizer.zero_grad()
    return found


def copied() -> tuple[int, int]:
    """Bytes fetched and offloaded so far."""
    stats = spillway.stats()["model_state"]
    return stats["fetched_bytes"], stats["copied_bytes"]


def in_parts(layers: nn.Sequential, pieces: int = 1, checkpoint: bool = True) -> dict[str, int]:
    model = spillway.OffloadModel(
        copy.deepcopy(layers),
        "cuda",
        num_slices=LAYERS,
        checkpoint_activation=checkpoint,
        num_microbatches=pieces,
    )
    optimizer = torch.optim.AdamW(model.parameters())
    found = peaks(model, optimizer)
    before = copied()
    backward(model)
    between = copied()
    optimizer.step()
    after = copied()
    return found | {
        "weights_in": between[0] - before[0],
        "gradients_out": between[1] - before[1],
        "step_in": after[0] - between[0],
        "step_out": after[1] - between[1],
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
    plain = layers.cuda()
    results["plain"] = peaks(plain, torch.optim.AdamW(plain.parameters()))
    for result in results.values():
        result["peak_passes"] -= workspace
        result["peak_step"] -= workspace
    results["plain"]["weights"] = sum(p.nbytes for p in plain.parameters())
    return results


print(json.dumps(main()))
