# SPDX-License-Identifier: Apache-2.0
"""A small training job that does not use Spillway, but prints the truth at its end, as JSON."""

import json
import os
import sys

import torch
from torch import nn

STEPS = int(os.environ.get("JOB_STEPS", "6"))
ROWS = 1024  # this many that offloading lowers the peak, which cuBLAS's workspaces are a part of


class Block(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.nn.functional.gelu(self.up(x)))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.small = Block(128, 256)
        self.large = Block(128, 2048)
        self.rest = nn.Sequential(*(Block(128, 1024) for _ in range(4)))
        self.head = nn.Linear(128, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.rest(self.large(self.small(x))))


def main() -> None:
    torch.manual_seed(0)
    model = Model().to("cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for step in range(STEPS):
        x = torch.randn(ROWS, 128, device="cuda", generator=torch.Generator("cuda").manual_seed(step))
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        del loss
        if os.environ.get("JOB_DIES_AT") == str(step):
            os.abort()
        if os.environ.get("JOB_WAITS_AT") == str(step):
            print("waiting", flush=True)
            sys.stdin.readline()
    truth = {"losses": losses, "peak": torch.cuda.max_memory_allocated(), "process": os.getpid()}
    if "spillway" in sys.modules:
        import spillway

        truth["stats"] = spillway.stats()
    print(json.dumps(truth))


if __name__ == "__main__":
    main()
