# SPDX-License-Identifier: Apache-2.0
"""A model that is trained, for the cases of several programs."""

import torch
from small_models import STEPS, inputs
from torch import nn

__all__ = ["STEPS", "Job", "inputs", "net", "step_as_gradients_come", "train"]


def net():
    return nn.Sequential(nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 24), nn.BatchNorm1d(24))


def step_as_gradients_come(optimizers):
    """Optimizers by parameter, each of which steps inside the backward pass and drops the gradient."""

    def step(parameter):
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for each in optimizers:
        each.register_post_accumulate_grad_hook(step)


def train(model):
    """The losses of some backward passes."""
    losses = []
    for _ in range(STEPS):
        loss = model(inputs(4, 24)).square().mean()
        loss.backward()
        losses.append(loss.item())
    return losses


class Job:
    def __init__(self, model=None, optimizer=torch.optim.AdamW, **options):
        self.model = (model or net()).cuda()
        self.optimizer = optimizer(self.model.parameters(), **({"lr": 0.01} | options))
        self.losses = []

    def backward(self, set_to_none=True):
        self.optimizer.zero_grad(set_to_none)
        loss = self.model(inputs(4, 24)).square().mean()
        loss.backward()
        self.losses.append(loss.item())

    def step(self, **options):
        self.backward(**options)
        self.optimizer.step()

    def result(self):
        return self.losses, self.model, self.optimizer
