# SPDX-License-Identifier: Apache-2.0
"""A training job of a random model, optimizer and sequence of lengths: `budget_job.py SEED [LENGTHS]`.

LENGTHS: as the seed has it; `one`: a single step; `fixed`: all the longest; `late`: a quarter of it, and the
longest in the last step but one. Prints its peaks of reserved memory, one for each step, as JSON.
"""

from __future__ import annotations

import json
import random
import sys
from typing import Any

import torch
from torch import nn


class Residual(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = x + self.inner(x)
        return result


def block(choose: random.Random, width: int) -> nn.Module:
    kind = choose.choice(("mlp", "encoder", "norm"))
    if kind == "encoder":
        return nn.TransformerEncoderLayer(
            width,
            4,
            dim_feedforward=width * choose.choice((2, 4)),
            dropout=choose.choice((0.0, 0.1)),
            batch_first=True,
        )
    hidden = width * choose.choice((1, 2, 4))
    act: nn.Module = choose.choice((nn.GELU, nn.ReLU, nn.SiLU, nn.Tanh))()
    layers = [nn.Linear(width, hidden), act, nn.Linear(hidden, width)]
    if kind == "norm":
        layers.insert(0, nn.LayerNorm(width))
    return Residual(nn.Sequential(*layers, nn.Dropout(choose.choice((0.0, 0.1)))))


def optimizer_of(choose: random.Random, parameters: Any) -> torch.optim.Optimizer:
    return choose.choice(
        (
            lambda: torch.optim.AdamW(parameters, lr=1e-3, foreach=True),
            lambda: torch.optim.AdamW(parameters, lr=1e-3, fused=True),
            lambda: torch.optim.AdamW(parameters, lr=1e-3, foreach=False),
            lambda: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
            lambda: torch.optim.SGD(parameters, lr=0.1),
            lambda: torch.optim.Adagrad(parameters, lr=0.1),
        )
    )()


def main(seed: int, lengths: str = "", steps: int = 8) -> None:
    choose = random.Random(seed)
    width = choose.choice((256, 512, 1024))
    model = nn.Sequential(*(block(choose, width) for _ in range(choose.randint(2, 8)))).cuda()
    optimizer = optimizer_of(choose, model.parameters())
    batch = choose.choice((1, 4, 16))
    longest = choose.choice((64, 512, 2048))
    varies = choose.choice((False, True))
    accumulates = choose.choice((1, 1, 2))
    to_none = choose.choice((True, True, False))
    autocast = choose.choice((False, True))
    reserved = []
    for step in range(steps):
        torch.cuda.reset_peak_memory_stats()
        for _ in range(accumulates):
            length = choose.randint(longest // 4, longest) if varies else longest
            if lengths:
                length = longest // 4 if lengths == "late" and step != steps - 2 else longest
            x = torch.randn(batch, length, width, device="cuda")
            with torch.autocast("cuda", dtype=torch.bfloat16, enabled=autocast):
                loss = model(x).float().square().mean()
            loss.backward()
            del loss
        optimizer.step()
        optimizer.zero_grad(set_to_none=to_none)
        reserved.append(torch.cuda.max_memory_reserved())
    print(json.dumps(reserved))


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:], steps=1 if "one" in sys.argv else 8)
