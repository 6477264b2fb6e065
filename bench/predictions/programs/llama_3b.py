# SPDX-License-Identifier: Apache-2.0
"""A training step of Llama-3.2-3B, operator for operator as torchtune's recipe of November 2024 takes it:
a batch of 2 packed sequences of 4096 tokens in bfloat16, tied embeddings, AdamW (fused).

Of torchtune 0.4.0: norms and rotations compute in float32; key and value are copied for every query's
head; each layer is compiled and checkpointed alone; the loss is in float32, whole or in eight parts.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from measure import measured
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.nn import functional

WORDS, WIDTH, INNER, LAYERS, HEADS, GROUPS, SIZE = 128256, 3072, 8192, 28, 24, 8, 128
BATCH, LENGTH, PARTS = 2, 4096, 8


class Norm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        exact = x.float()
        inverse = torch.rsqrt(exact.pow(2).mean(-1, keepdim=True) + 1e-5)
        return (exact * inverse).type_as(x) * self.scale


class Turn(nn.Module):
    """Rotates pairs of neighbors by the angle of their place, in float32; one table for all layers."""

    def __init__(self, longest: int = 131072) -> None:
        super().__init__()
        steps = 5e5 ** (-torch.arange(0, SIZE, 2).float() / SIZE)
        angles = torch.outer(torch.arange(longest).float(), steps)
        self.register_buffer("steps", steps, persistent=False)
        self.register_buffer("table", torch.stack((angles.cos(), angles.sin()), -1), persistent=False)

    def forward(self, x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        pairs = x.float().reshape(*x.shape[:-1], -1, 2)
        at = self.table[places].view(-1, pairs.size(1), 1, pairs.size(3), 2)
        a, b, cos, sin = pairs[..., 0], pairs[..., 1], at[..., 0], at[..., 1]
        return torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(3).type_as(x)


class Attention(nn.Module):
    def __init__(self, turn: Turn) -> None:
        super().__init__()
        self.turn = turn
        self.query = nn.Linear(WIDTH, HEADS * SIZE, bias=False)
        self.key, self.value = (nn.Linear(WIDTH, GROUPS * SIZE, bias=False) for _ in range(2))
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        query = self.turn(self.query(x).view(batch, length, HEADS, SIZE), places)
        key = self.turn(self.key(x).view(batch, length, GROUPS, SIZE), places)
        value = self.value(x).view(batch, length, GROUPS, SIZE)
        key, value = (
            each.unsqueeze(3).expand(-1, -1, -1, HEADS // GROUPS, -1).reshape(batch, length, HEADS, SIZE)
            for each in (key, value)
        )
        query, key, value = (each.transpose(1, 2) for each in (query, key, value))
        # Published runs masked by document (flex_attention), which saves the same tensors.
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out(attended.transpose(1, 2).contiguous().view(batch, length, -1))


class FeedForward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up = (nn.Linear(WIDTH, INNER, bias=False) for _ in range(2))
        self.down = nn.Linear(INNER, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = functional.silu(self.gate(x))
        hidden = hidden * self.up(x)
        return self.down(hidden)


class Layer(nn.Module):
    def __init__(self, turn: Turn) -> None:
        super().__init__()
        self.attention, self.feed_forward = Attention(turn), FeedForward()
        self.norms = nn.ModuleList(Norm() for _ in range(2))

    def forward(self, x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        x = self.attention(self.norms[0](x), places) + x
        return x + self.feed_forward(self.norms[1](x))


class Llama(nn.Module):
    def __init__(self, parts: int) -> None:
        super().__init__()
        self.words, turn = nn.Embedding(WORDS, WIDTH), Turn()
        self.layers = nn.ModuleList(Layer(turn) for _ in range(LAYERS))
        self.norm, self.parts = Norm(), parts
        self.offloading: Callable[[], AbstractContextManager] = nullcontext  # around the layers, not the head

    def forward(self, tokens: torch.Tensor, places: torch.Tensor) -> list[torch.Tensor]:
        with self.offloading():
            x = self.words(tokens)
            for layer in self.layers:
                x = layer(x, places)
            x = self.norm(x)
        if self.parts == 1:
            return [functional.linear(x, self.words.weight).float()]
        return [functional.linear(part, self.words.weight) for part in x.chunk(self.parts, 1)]


def cross_entropy(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(logits.float(), labels, ignore_index=-100, reduction="sum")


def offloading() -> Callable[[], AbstractContextManager]:
    """torchtune's own, one object for all steps."""
    from torchtune.training import OffloadActivations

    manager = OffloadActivations()
    return lambda: manager


def trainer(options: argparse.Namespace) -> Callable[[], None]:
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = Llama(PARTS if options.chunked else 1)
        ignored = torch.full((BATCH, 1), -100)
    torch.set_default_dtype(torch.float32)
    loss_of: Callable = cross_entropy
    if options.compile:
        for layer in model.layers:
            layer.compile()
        loss_of = torch.compile(cross_entropy)
    if options.checkpoint:
        model.layers = nn.ModuleList(checkpoint_wrapper(layer) for layer in model.layers)
    if options.offload:
        model.offloading = offloading()
    parameters = list(model.parameters())
    optimizers = {each: torch.optim.AdamW([each], lr=2e-5, fused=True) for each in parameters}
    whole = torch.optim.AdamW(parameters, lr=2e-5, fused=True)

    def stepped(parameter: torch.Tensor) -> None:
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    if options.in_backward:
        for each in parameters:
            each.register_post_accumulate_grad_hook(stepped)

    def step() -> None:
        tokens = torch.randint(WORDS, (BATCH, LENGTH)).cuda()
        labels = torch.randint(WORDS, (BATCH, LENGTH)).cuda()
        places = torch.arange(LENGTH).expand(BATCH, -1).contiguous().cuda()
        count = (labels != -100).sum()
        logits = model(tokens, places)
        labels = torch.hstack((labels[:, 1:], ignored))
        known = (labels != -100).sum()
        targets = [each.reshape(-1) for each in labels.chunk(len(logits), 1)]
        flat = [each.reshape(-1, WORDS) for each in logits]
        del logits
        loss = sum(loss_of(*each) for each in zip(flat, targets, strict=True)) / known * count
        del flat
        loss.backward()
        if not options.in_backward:
            for each in parameters:
                each.grad *= 1 / count
            whole.step()
            whole.zero_grad(set_to_none=True)

    return step


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for name in ("compile", "chunked", "checkpoint", "in-backward", "offload"):
        parser.add_argument(f"--{name}", action="store_true")
    options = parser.parse_args()
    measured(trainer(options), tokens=BATCH * LENGTH)


main()
