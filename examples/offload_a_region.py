# SPDX-License-Identifier: Apache-2.0
"""Trains a small network whose saved activations wait in host memory between forward and backward."""

import spillway
import torch
from torch import nn

spillway.use_allocator()  # before CUDA starts: freed blocks are reused while their copy still runs

model = nn.Sequential(*[nn.Sequential(nn.Linear(512, 512), nn.GELU()) for _ in range(8)]).cuda()
optimizer = torch.optim.AdamW(model.parameters())

for step in range(3):
    batch = torch.randn(256, 512, device="cuda")
    with spillway.CPUOffload(offload_ratio=0.5):
        loss = model(batch).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step}: loss {loss.item():.4f}")

print(spillway.stats())
