# SPDX-License-Identifier: Apache-2.0
"""A small GPT over bytes, and its batches."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Size:
    context: int
    width: int
    layers: int
    heads: int
    batch: int
    vocabulary: int = 256
    dropout: float = 0.1


SIZES = {
    "demo": Size(context=256, width=256, layers=4, heads=4, batch=16),
    "small": Size(context=64, width=64, layers=2, heads=2, batch=4),
}


class Block(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.heads = size.heads
        self.dropout = size.dropout
        self.norm_attention = nn.LayerNorm(size.width)
        self.qkv = nn.Linear(size.width, 3 * size.width)
        self.out = nn.Linear(size.width, size.width)
        self.drop_attention = nn.Dropout(size.dropout)
        self.norm_mlp = nn.LayerNorm(size.width)
        self.up = nn.Linear(size.width, 4 * size.width)
        self.act = nn.GELU()
        self.down = nn.Linear(4 * size.width, size.width)
        self.drop_mlp = nn.Dropout(size.dropout)

    def attend(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        heads = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = heads.permute(2, 0, 3, 1, 4).unbind(0)
        dropout = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(query, key, value, dropout_p=dropout, is_causal=True)
        result: Tensor = self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return result

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.drop_attention(self.attend(self.norm_attention(x)))
        result: Tensor = x + self.drop_mlp(self.down(self.act(self.up(self.norm_mlp(x)))))
        return result


class Gpt(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.tokens = nn.Embedding(size.vocabulary, size.width)
        self.places = nn.Embedding(size.context, size.width)
        self.drop = nn.Dropout(size.dropout)
        self.blocks = nn.ModuleList(Block(size) for _ in range(size.layers))
        self.norm = nn.LayerNorm(size.width)
        self.head = nn.Linear(size.width, size.vocabulary)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """The mean cross-entropy of predicting `targets` from `tokens`, both [batch, context]."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.drop(self.tokens(tokens) + self.places(places))
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())


class Batches:
    """Windows of the text, drawn on the host from seed and step alone: the same in every variant."""

    def __init__(self, text: bytes, size: Size, seed: int) -> None:
        self.text = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        self.size = size
        self.seed = seed

    def at(self, step: int, device: str) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + step)
        starts = torch.randint(len(self.text) - self.size.context, (self.size.batch, 1), generator=generator)
        window = self.text[starts + torch.arange(self.size.context + 1)].long()
        return window[:, :-1].contiguous().to(device), window[:, 1:].contiguous().to(device)
