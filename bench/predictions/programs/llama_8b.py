# SPDX-License-Identifier: Apache-2.0
"""A step of full fine-tuning a model of Llama-3-8B's shape, in bfloat16 with AdamW (fused), in one of several
ways to keep its activations: `plain`, `checkpoint` (torch.utils.checkpoint, every layer), `save_on_cpu`
(pinned, PyTorch's own), `trl` and `torchtune` (their offloaders as published). Spillway's way is `plain`
under `spillway run --ratio`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from measure import measured
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

WORDS, WIDTH, INNER, HEADS, GROUPS, SIZE = 128256, 4096, 14336, 32, 8, 128


def turned(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.RMSNorm(WIDTH, 1e-5) for _ in range(2))
        self.query, self.out = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(2))
        self.key, self.value = (nn.Linear(WIDTH, GROUPS * SIZE, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(WIDTH, INNER, bias=False) for _ in range(2))
        self.down = nn.Linear(INNER, WIDTH, bias=False)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        y = self.norms[0](x)
        query, key, value = (
            part(y).view(*y.shape[:2], -1, SIZE) for part in (self.query, self.key, self.value)
        )
        query, key = turned(query, cos, sin), turned(key, cos, sin)
        y = functional.scaled_dot_product_attention(
            *(each.transpose(1, 2) for each in (query, key, value)), is_causal=True, enable_gqa=True
        )
        x = x + self.out(y.transpose(1, 2).reshape(x.shape))
        y = self.norms[1](x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, layers: int) -> None:
        super().__init__()
        self.words, self.output = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS, bias=False)
        self.layers = nn.ModuleList(Layer() for _ in range(layers))
        self.norm = nn.RMSNorm(WIDTH, 1e-5)
        self.layer: Callable = lambda layer, *arguments: layer(*arguments)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.words(tokens)
        steps = 5e5 ** (-torch.arange(0, SIZE, 2, device=x.device).float() / SIZE)
        angles = torch.outer(torch.arange(tokens.shape[1], device=x.device).float(), steps)[None, :, None]
        turn = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        for layer in self.layers:
            x = self.layer(layer, x, *turn)
        return self.output(self.norm(x))


def keeping(way: str, model: Llama) -> AbstractContextManager:
    """What surrounds each forward pass."""
    if way == "save_on_cpu":
        return torch.autograd.graph.save_on_cpu(pin_memory=True)
    if way == "trl":
        from trl.models.activation_offloading import get_act_offloading_ctx_manager

        return get_act_offloading_ctx_manager(model)
    if way == "torchtune":
        from torchtune.training import get_act_offloading_ctx_manager

        return get_act_offloading_ctx_manager(model, True)
    if way == "checkpoint":
        model.layer = lambda layer, *arguments: checkpoint(layer, *arguments, use_reentrant=False)
    return nullcontext()


def trainer(options: argparse.Namespace) -> Callable[[], None]:
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = Llama(options.layers)
    torch.set_default_dtype(torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    region = keeping(options.way, model)

    def step() -> None:
        tokens = torch.randint(WORDS, (options.batch, options.length), device="cuda")
        with region:
            logits = model(tokens).view(-1, WORDS)
            loss = functional.cross_entropy(logits, tokens.roll(-1, 1).view(-1))
        del logits
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    ways = ("plain", "checkpoint", "save_on_cpu", "trl", "torchtune")
    parser.add_argument("way", choices=ways, nargs="?", default="plain")
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--length", type=int, default=4096)
    options = parser.parse_args()
    measured(trainer(options), tokens=options.batch * options.length)


main()
