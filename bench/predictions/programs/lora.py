# SPDX-License-Identifier: Apache-2.0
"""A micro-batch of LoRA fine-tuning in bfloat16, of phi-1.5, StableLM Alpha 3B or Llama 2 7B and 13B.

Rank 8 on queries and values, dropout 0.05; the update is put among the keys' zeros by index_copy. The output
and the loss are in pieces of 128 tokens, the loss in float32, as Lightning Fabric turns what a model gives.
As long as the longest example that the published runs had.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

import torch
from measure import measured
from torch import nn
from torch.nn import functional

RANK, SCALE, PIECE = 8, 2.0, 128


@dataclass(frozen=True)
class Shape:
    layers: int
    width: int
    heads: int
    hidden: int
    words: int
    turned: float  # the share of a head that positions turn
    length: int
    llama: bool = False  # RMS norms, SwiGLU, no biases, one residual after the other
    one_norm: bool = False  # for attention and for what goes beside it
    kind: str = "none"  # of GELU


SHAPES = {
    "phi-1.5": Shape(24, 2048, 32, 8192, 51200, 0.5, 1044, one_norm=True, kind="tanh"),
    "stablelm-3b": Shape(16, 4096, 32, 16384, 50688, 0.25, 1034),
    "llama-2-7b": Shape(32, 4096, 32, 11008, 32000, 1.0, 1304, llama=True),
    "llama-2-13b": Shape(40, 5120, 40, 13824, 32000, 1.0, 1304, llama=True),
}


class RmsNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        return (self.weight * (wide * torch.rsqrt((wide * wide).mean(-1, keepdim=True) + 1e-5))).to(x.dtype)


class Adapted(nn.Module):
    """Queries, keys and values by one product, the first and the last with an update of low rank."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width = shape.width
        self.all = nn.Linear(width, 3 * width, bias=not shape.llama)
        self.down = nn.Parameter(torch.zeros(2 * RANK, width))
        self.up = nn.Parameter(torch.zeros(2 * width, RANK))
        self.dropout = nn.Dropout(0.05)
        places = torch.arange(3 * width)
        self.register_buffer("places", torch.cat((places[:width], places[2 * width :])), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result = self.all(x)
        low = functional.linear(self.dropout(x), self.down)
        update = functional.conv1d(low.transpose(-2, -1), self.up.unsqueeze(-1), groups=2).transpose(-2, -1)
        update = update.transpose(0, 1)
        wide = update.new_zeros((*update.shape[:-1], result.shape[-1])).view(-1, result.shape[-1])
        wide = wide.index_copy(1, self.places, update.reshape(-1, update.shape[-1]))
        result += wide.view(*update.shape[:-1], -1).transpose(0, 1) * SCALE
        return result


def turn(x: torch.Tensor, by: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return (x * by[0]) + (turned * by[1])


class Layer(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        norm, bias = RmsNorm if shape.llama else nn.LayerNorm, not shape.llama
        self.shape = shape
        self.norms = nn.ModuleList(norm(shape.width) for _ in range(1 if shape.one_norm else 2))
        self.all, self.out = Adapted(shape), nn.Linear(shape.width, shape.width, bias=bias)
        self.up = nn.Linear(shape.width, shape.hidden, bias=bias)
        self.gate = nn.Linear(shape.width, shape.hidden, bias=False) if shape.llama else None
        self.down = nn.Linear(shape.hidden, shape.width, bias=bias)

    def attend(self, x: torch.Tensor, by: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        batch, length, width = x.shape
        heads = self.shape.heads
        size = width // heads
        together = self.all(x).view(batch, length, heads, 3, size).permute(0, 2, 3, 1, 4)
        query, key, value = (part.reshape(batch, heads, length, size) for part in together.split(1, dim=2))
        turned = int(self.shape.turned * size)
        query, key = (
            torch.cat((turn(part[..., :turned], by), part[..., turned:]), dim=-1) for part in (query, key)
        )
        found = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out(found.transpose(1, 2).reshape(batch, length, width))

    def expand(self, x: torch.Tensor) -> torch.Tensor:
        if self.gate is not None:
            first, second = self.gate(x), self.up(x)
            return self.down(functional.silu(first) * second)
        return self.down(functional.gelu(self.up(x), approximate=self.shape.kind))

    def forward(self, x: torch.Tensor, by: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        normed = self.norms[0](x)
        attended = self.attend(normed, by)
        if self.shape.llama:
            x = attended + x
            return self.expand(self.norms[1](x)) + x
        return self.expand(normed if self.shape.one_norm else self.norms[1](x)) + attended + x


class Model(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.words = nn.Embedding(shape.words, shape.width)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = RmsNorm(shape.width) if shape.llama else nn.LayerNorm(shape.width)
        self.output = nn.Linear(shape.width, shape.words, bias=False)
        turned = int(shape.turned * shape.width // shape.heads)
        self.register_buffer("by", torch.zeros(2, shape.length, turned), persistent=False)

    def forward(self, tokens: torch.Tensor) -> list[torch.Tensor]:
        x = self.words(tokens)
        for layer in self.layers:
            x = layer(x, (self.by[0], self.by[1]))
        return [self.output(piece) for piece in self.norm(x).split(PIECE, dim=1)]


def loss_of(logits: list[torch.Tensor], targets: torch.Tensor) -> torch.Tensor:
    pieces = [piece.reshape(-1, piece.shape[-1]) for piece in logits]
    known = [piece.reshape(-1) for piece in targets.split(PIECE, dim=1)]
    losses = [
        functional.cross_entropy(piece, target, ignore_index=-1, reduction="none")
        for piece, target in zip(pieces, known, strict=True)
    ]
    return torch.cat(losses).mean()


def trainer(shape: Shape, batch: int) -> Callable[[], None]:
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = Model(shape)
        tokens = torch.randint(shape.words, (batch, shape.length))
    torch.set_default_dtype(torch.float32)
    for name, parameter in model.named_parameters():
        parameter.requires_grad = name.endswith(("all.down", "all.up"))
    optimizer = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], lr=3e-4)

    def step() -> None:
        logits = [piece.float() for piece in model(tokens)]
        logits[-1] = logits[-1][..., :-1, :]
        loss_of(logits, tokens[..., 1:]).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("model", choices=SHAPES)
    parser.add_argument("--batch", type=int, default=1)
    options = parser.parse_args()
    shape = SHAPES[options.model]
    measured(trainer(shape, options.batch), tokens=options.batch * shape.length)


main()
