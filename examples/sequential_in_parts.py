# SPDX-License-Identifier: Apache-2.0
"""Trains a sequential model of which two parts are on the GPU at a time, beside the plain model.

Weights come in for the forward and for the backward pass, gradients go out, and AdamW runs on the GPU in
slices.
"""

import copy

import spillway
import torch
from torch import nn

STEPS = 3

spillway.use_allocator()  # before CUDA starts


def train(model):
    """Losses, and the most device memory that it has had."""
    optimizer = torch.optim.AdamW(model.parameters())
    torch.cuda.reset_peak_memory_stats()
    losses = []
    for step in range(STEPS):
        torch.manual_seed(step)
        loss = model(torch.randn(32, 256, device="cuda")).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(round(loss.item(), 5))
    return losses, torch.cuda.max_memory_allocated() - before


# The matrix library takes its workspace at its first use.
nn.Linear(8, 8, device="cuda")(torch.ones(8, 8, device="cuda")).sum().backward()
before = torch.cuda.memory_allocated()

torch.manual_seed(0)
layers = nn.Sequential(*(nn.Sequential(nn.Linear(256, 256), nn.GELU()) for _ in range(12)))
weights = sum(p.nbytes for p in layers.parameters())

in_parts = spillway.OffloadModel(
    copy.deepcopy(layers), "cuda", num_slices=12, checkpoint_activation=True, num_microbatches=2
)
losses, peak = train(in_parts)
moved = spillway.stats()["model_state"]
del in_parts

plain = layers.cuda()
plain_losses, plain_peak = train(plain)

print(f"weights: {weights >> 10} KiB")
print(f"losses in parts: {losses}")
print(f"losses plain:    {plain_losses}")
print(f"peak in parts: {peak >> 10} KiB, plain: {plain_peak >> 10} KiB")
print(
    f"per step: {moved['fetched_bytes'] // STEPS >> 10} KiB of weights, gradients and states in, "
    f"{moved['copied_bytes'] // STEPS >> 10} KiB out"
)
