# SPDX-License-Identifier: Apache-2.0
"""A training job of layers that are one product each, without any use of Spillway. Prints its own peak. An
argument is the number of layers."""

import os
import resource
import signal
import sys

import torch
from torch import nn

LAYERS = int(os.environ.get("JOB_LAYERS", "4"))
STEPS = int(os.environ.get("JOB_STEPS", "4"))
WIDTH = 4096
ROWS = 16384
ENDS = os.environ.get("JOB_ENDS", "")


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.product = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.product(x).sin()


class Model(nn.Module):
    def __init__(self, layers: int) -> None:
        super().__init__()
        if os.environ.get("JOB_UNROLLED"):
            self.first, self.second = Layer(), Layer()
        else:
            self.layers = nn.ModuleList(Layer() for _ in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.children() if os.environ.get("JOB_UNROLLED") else self.layers:
            x = layer(x)
        return x


def main() -> None:
    with torch.device("cuda"):
        model = Model(int(sys.argv[1]) if len(sys.argv) > 1 else LAYERS).bfloat16()
        x = torch.randn(ROWS, WIDTH, dtype=torch.bfloat16)
    if os.environ.get("JOB_COMPILED"):
        model = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    peak = 0
    for _ in range(STEPS):
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        peak = max(peak, torch.cuda.max_memory_allocated())
        torch.cuda.reset_peak_memory_stats()
    if ENDS == "no step":
        model(x)
    print(peak, flush=True)
    if ENDS == "memory":
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
    if ENDS == "killed":
        os.kill(os.getpid(), signal.SIGTERM)
    if ENDS == "out of memory":
        torch.empty(1 << 40, dtype=torch.uint8, device="cuda")
    late = ENDS == "moving fails late" and torch.cuda.get_device_properties(0).total_memory > 8 << 30
    if (ENDS == "moving fails" or late) and "SPILLWAY_OFFLOAD_RATIO" in os.environ:
        raise ValueError("not with a ratio")
    sys.exit(7 if ENDS == "status" else 0)


if __name__ == "__main__":
    main()
