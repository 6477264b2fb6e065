# SPDX-License-Identifier: Apache-2.0
"""A training run of 16 weights of 4 MiB with AdamW, which prints its losses and warnings."""

import json
import warnings

import spillway
import torch
from torch import nn

WIDTH = 1024

torch.manual_seed(0)
model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(16))).to("cuda")
optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)
losses = []
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for _ in range(3):
        loss = model(torch.randn(4, WIDTH).cuda()).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
print("losses:", json.dumps(losses))
print("warnings:", json.dumps([str(each.message) for each in caught]))
print("total:", sum(of["storages"] for of in spillway.stats()["model_state"]["classes"].values()))
