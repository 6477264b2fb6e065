# SPDX-License-Identifier: Apache-2.0
"""FairScale's OffloadModel and ours on the same layers: bytes in and out per step, memory, and the results.

Takes the allocator (`spillway` or `torch`), the implementation (`plain`, `ours` or `theirs`), the treatment
of the activations (`checkpoint` or `keep`), and the number of slices. Each has a process of its own, so
that no cached memory of one is another's.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from typing import Any

import spillway
import torch
from torch import nn

from bench.peers import systems
from bench.peers.counters import bytes_copied

LAYERS = 16
WIDTH = 1024
ROWS = 16
STEPS = 4

os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":16:1"  # a constant beside the model otherwise
allocator, whose, activations, slices = sys.argv[1:]
torch.set_num_threads(1)
if allocator == "spillway":
    spillway.use_allocator()


def layers() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(LAYERS)))


def build(net: nn.Sequential) -> nn.Module:
    if whose == "plain":
        return net.cuda()
    of = spillway.OffloadModel if whose == "ours" else systems.fairscale().module.OffloadModel
    return of(
        net,
        device=torch.device("cuda"),
        offload_device=torch.device("cpu"),
        num_slices=int(slices),
        checkpoint_activation=activations == "checkpoint",
        num_microbatches=1,
    )


def digest(net: nn.Module) -> str:
    found = hashlib.sha256()
    for parameter in net.parameters():
        found.update(parameter.detach().cpu().numpy().tobytes())
    return found.hexdigest()


def train() -> dict[str, Any]:
    net = layers()
    weights = sum(p.nbytes for p in net.parameters())
    model = build(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(1)).cuda()
    back = out = 0
    for _ in range(STEPS):
        optimizer.zero_grad()
        come, gone = bytes_copied()
        torch.cuda.reset_peak_memory_stats()
        model(data).square().sum().backward()
        back, out = (now - then for now, then in zip(bytes_copied(), (come, gone), strict=True))
        peak = torch.cuda.max_memory_allocated()
        optimizer.step()
    return {
        "weights": weights,
        "in": back,
        "out": out,
        "peak": peak,
        "reserved": torch.cuda.max_memory_reserved(),
        "bits": digest(net),
    }


print(json.dumps(train()))
