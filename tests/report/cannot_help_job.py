# SPDX-License-Identifier: Apache-2.0
"""A training job whose peak is in the phase that its argument names. Prints stats() after each step."""

import contextlib
import json
import logging
import sys
from typing import Any

import torch
from torch import nn

WHERE = sys.argv[1]
STEPS = int(sys.argv[2]) if len(sys.argv) > 2 else 5
GROWS = int(sys.argv[3]) if len(sys.argv) > 3 else STEPS  # the step from which on batches are larger
WIDTH, LAYERS = 512, 6


class Scratch(torch.autograd.Function):
    """An operator with a workspace of 512 MiB."""

    @staticmethod
    def forward(ctx, x):
        torch.empty(512 << 20, dtype=torch.uint8, device="cuda")
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class WithScratch(nn.Module):
    def forward(self, x):
        return Scratch.apply(x)


class Wide(nn.Module):
    """Needs 256 MiB in between, which no graph saves."""

    def __init__(self):
        super().__init__()
        self.register_buffer("wide", torch.randn(WIDTH, 32768))

    def forward(self, x):
        return x + (x.detach() @ self.wide).sum(-1, keepdim=True)


def spillway_stats() -> dict[str, Any]:
    spillway = sys.modules.get("spillway")
    stats: dict[str, Any] = spillway.stats() if spillway else {"cannot_help": None, "tags": {}}
    return stats


def main() -> None:
    logging.basicConfig(level=logging.INFO)
    torch.manual_seed(0)
    rows = 16 if WHERE in ("optimizer", "model_state") else 2048
    width = 1024 if WHERE in ("optimizer", "model_state") else WIDTH
    layers = [part for _ in range(LAYERS) for part in (nn.Linear(width, width), nn.GELU())]
    if WHERE == "operator":
        layers.insert(1, WithScratch())
    if WHERE == "compiled_graph":
        layers.insert(1, Wide())
    model = nn.Sequential(*layers).to("cuda")
    called = model
    if WHERE == "compiled_graph":  # as for a CUDA graph, whose saved tensors stay together
        torch._inductor.config.triton.cudagraphs = True
        called = torch.compile(model, backend="aot_eager")
    states = WHERE in ("optimizer", "model_state")
    optimizer = (
        torch.optim.AdamW(model.parameters()) if states else torch.optim.SGD(model.parameters(), lr=1e-3)
    )
    elsewhere = torch.autograd.graph.save_on_cpu if WHERE == "other_offloader" else contextlib.nullcontext
    found, kept, offloaded, peaks = [], [], [], []
    for step in range(STEPS):
        if step == GROWS:
            rows *= 256
        torch.cuda.reset_peak_memory_stats()
        with elsewhere():
            loss = called(torch.randn(rows, width, device="cuda")).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if WHERE == "evaluation" or (WHERE == "one_evaluation" and step == 0):
            with torch.no_grad():
                model(torch.randn(32 * rows, width, device="cuda"))
        peaks.append(torch.cuda.max_memory_allocated())
        stats = spillway_stats()
        found.append(stats["cannot_help"])
        job = stats["tags"].get("job", {"last": {"offloaded_bytes": 0, "skipped": {}}})["last"]
        offloaded.append(job["offloaded_bytes"])
        kept.append(job["skipped"].get("cannot_help", {"bytes": 0})["bytes"])
    print(
        json.dumps({"found": found, "kept": kept, "offloaded": offloaded, "peaks": peaks, "peak": max(peaks)})
    )


if __name__ == "__main__":
    main()
