# SPDX-License-Identifier: Apache-2.0
"""Accumulates gradients over micro-batches that wait in host memory between forward and backward."""

import spillway
import torch
from torch import nn

spillway.use_allocator()  # before CUDA starts: freed blocks are reused while their copy still runs

layers = [nn.Sequential(nn.Linear(512, 512), nn.GELU()) for _ in range(8)]
model = nn.Sequential(*[spillway.checkpoint_wrapper(layer) for layer in layers]).cuda()
optimizer = torch.optim.AdamW(model.parameters())
micro = spillway.microbatches(activation_loading_horizon=2)

for step in range(3):
    with micro:
        losses = []
        for _ in range(4):
            with micro.batch():
                losses.append(model(torch.randn(256, 512, device="cuda")).square().mean() / 4)
        for loss in losses:
            loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step}: loss {sum(loss.item() for loss in losses):.4f}")

print(micro.stats())
