# SPDX-License-Identifier: Apache-2.0
"""A step of micro-batches whose activations take the room that is free between two of them."""

import sys

import torch
from cases import case, main, managed_stats
from torch import nn

WIDTH = 1024  # 4 MiB a weight


class Wide(nn.Module):
    """Saves 8 MiB and computes little."""

    def forward(self, x):
        return torch.tanh(x.expand(32, *x.shape)).mean(0)


@case
def micro_batches():
    layers = (layer for _ in range(16) for layer in (nn.Linear(WIDTH, WIDTH), Wide()))
    model = nn.Sequential(*layers).to("cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)
    losses, fetched = [], []
    for _ in range(4):
        for _ in range(8):
            loss = model(torch.randn(64, WIDTH).cuda()).square().mean()
            loss.backward()
            losses.append(loss.item())
        optimizer.step()
        optimizer.zero_grad()
        fetched.append((managed_stats() or {}).get("fetched_bytes", 0))
    parameters = sum(each.nbytes for each in model.parameters())
    print("of the parameters:", parameters, file=sys.stderr)
    print("fetched in the last step:", fetched[-1] - fetched[-2], file=sys.stderr)
    return losses, model


main()
