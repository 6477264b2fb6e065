# SPDX-License-Identifier: Apache-2.0
"""A training run whose model state is larger than its budget."""

import torch
from cases import case, main
from torch import nn

WIDTH = 512  # 1 MiB a weight


@case
def model_state_larger_than_the_budget():
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(16))).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)
    losses, norms = [], []
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(torch.randn(4, WIDTH).cuda()).square().mean()
        loss.backward()
        norms.append(nn.utils.clip_grad_norm_(model.parameters(), 0.1).item())
        optimizer.step()
        losses.append(loss.item())
    return losses, norms, model, optimizer


main()
