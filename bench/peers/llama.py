# SPDX-License-Identifier: Apache-2.0
"""The model whose state is offloaded: Llama 3 8B's shape with a few of its layers, small or at full size."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional


@dataclass(frozen=True)
class Size:
    """`batch` and `length` are those of one micro-batch."""

    layers: int
    width: int
    hidden: int
    heads: int
    groups: int
    words: int
    batch: int
    length: int


SMALL = Size(layers=4, width=512, hidden=1408, heads=8, groups=4, words=4096, batch=2, length=32)


def full(batch: int) -> Size:
    """2.0 billion parameters: a vocabulary of 32000 words in place of 128256."""
    return Size(8, 4096, 14336, heads=32, groups=8, words=32000, batch=batch, length=4096)


SIZES = {"small": SMALL, "full-1": full(1), "full-4": full(4)}


class Block(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        grouped = size.groups * size.width // size.heads
        self.head = size.width // size.heads
        self.before, self.between = (nn.RMSNorm(size.width, eps=1e-5) for _ in range(2))
        self.q, self.o = (nn.Linear(size.width, size.width, bias=False) for _ in range(2))
        self.k, self.v = (nn.Linear(size.width, grouped, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(size.width, size.hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(size.hidden, size.width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.before(x)
        q, k, v = (
            part(y).unflatten(-1, (-1, self.head)).transpose(1, 2) for part in (self.q, self.k, self.v)
        )
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.o(y.transpose(1, 2).flatten(2))
        y = self.between(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    """Returns the loss."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.words = nn.Embedding(size.words, size.width)
        self.blocks = nn.ModuleList(Block(size) for _ in range(size.layers))
        self.norm = nn.RMSNorm(size.width, eps=1e-5)
        self.output = nn.Linear(size.width, size.words, bias=False)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.words(words)
        for block in self.blocks:
            x = block(x)
        return functional.cross_entropy(self.output(self.norm(x)).flatten(0, 1), words.flatten())


def llama(size: Size) -> Llama:
    """On the host, in bfloat16."""
    torch.manual_seed(0)
    return Llama(size).bfloat16()
