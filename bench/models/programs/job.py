# SPDX-License-Identifier: Apache-2.0
"""What all models here share: a training loop, plain or checkpointed, and what it prints."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import save_on_cpu
from torch.utils.checkpoint import checkpoint


@dataclass(frozen=True)
class Job:
    """A model, the blocks that checkpointing wraps, and the loss of a new batch."""

    model: nn.Module
    blocks: list[nn.Module]
    loss: Callable[[nn.Module], torch.Tensor]
    momentum: float | None = None  # trained by SGD with it; none: by AdamW


def wrap(block: nn.Module, on_host: bool) -> None:
    """Checkpoints the block, with its inputs on the host if so asked."""
    inner = block.forward

    def forward(*given: Any, **named: Any) -> Any:
        with save_on_cpu(pin_memory=True) if on_host else nullcontext():
            return checkpoint(inner, *given, use_reentrant=False, **named)

    block.forward = forward  # type: ignore[method-assign]


def curve() -> list[dict[str, Any]]:
    """The points of the plan's curve; none without a budget."""
    import spillway

    found = spillway.explain()
    if found is None:
        return []
    return [
        {"budget": point.budget, "ms": point.seconds * 1e3, "optimality": point.optimality}
        for point in found.curve
    ]


def train(job: Job, way: str, precision: str, steps: int) -> None:
    model = job.model.cuda().train()
    if precision == "bfloat16":
        model = model.bfloat16()
    if way != "plain":
        for block in job.blocks:
            wrap(block, way == "save_on_cpu")
    if job.momentum is None:
        optimizer: torch.optim.Optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=job.momentum)
    cast = torch.autocast("cuda", torch.bfloat16) if precision == "autocast" else nullcontext()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(steps + 1)]
    marks[0].record()
    for mark in marks[1:]:
        with cast:
            loss = job.loss(model)
        loss.backward()
        del loss
        optimizer.step()
        optimizer.zero_grad()
        mark.record()
    torch.cuda.synchronize()
    found = {
        "steps": [round(begin.elapsed_time(end), 2) for begin, end in pairwise(marks)],
        "reserved": torch.cuda.max_memory_reserved(),
        "curve": curve(),
    }
    print("measured: " + json.dumps(found), flush=True)
