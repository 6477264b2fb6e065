# SPDX-License-Identifier: Apache-2.0
"""Small models and how they are trained, for the cases of several programs."""

import torch
from torch import nn

STEPS = 3


def inputs(*shape):
    return torch.randn(*shape).cuda()


def mlp(width=24, depth=2):
    layers = [nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(depth)]
    return nn.Sequential(*layers, nn.Linear(width, width))


def adamw(model, **options):
    return torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], lr=0.01, **options)


def minimize(loss_of, optimizer, steps=STEPS):
    """The losses of these steps. `loss_of(step)` computes each of them."""
    losses = []
    for step in range(steps):
        loss = loss_of(step)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def train(model, batch, optimizer=None, steps=STEPS, each=lambda step: None):
    def loss_of(step):
        each(step)
        return model(batch()).float().square().mean()

    optimizer = optimizer or adamw(model)
    return minimize(loss_of, optimizer, steps), model, optimizer


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(32, 24)
        self.block = nn.Linear(24, 24)  # used three times
        self.head = nn.Linear(24, 32, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        hidden = self.embedding(tokens)
        for _ in range(3):
            hidden = hidden + self.block(hidden).tanh()
        return self.head(hidden)
