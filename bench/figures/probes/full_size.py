# SPDX-License-Identifier: Apache-2.0
"""Blocks of models at full size, for dry runs: in bfloat16, without embeddings."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **how: bool) -> torch.Tensor:
    """Of [batch, sequence, heads, width of a head], which it keeps."""
    q, k, v = (part.transpose(1, 2) for part in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, **how).transpose(1, 2)


class LlamaBlock(nn.Module):
    """Of Llama 3 8B, and with other widths of larger ones."""

    def __init__(self, width: int = 4096, hidden: int = 14336) -> None:
        super().__init__()
        grouped = 1024
        self.before, self.between = nn.RMSNorm(width, eps=1e-5), nn.RMSNorm(width, eps=1e-5)
        self.q, self.k, self.v = (nn.Linear(width, out, bias=False) for out in (width, grouped, grouped))
        self.o = nn.Linear(width, width, bias=False)
        self.gate, self.up = (nn.Linear(width, hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.before(x)
        q, k, v = (layer(y).unflatten(-1, (-1, 128)) for layer in (self.q, self.k, self.v))
        x = x + self.o(attention(q, k, v, is_causal=True, enable_gqa=True).flatten(2))
        y = self.between(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Head(nn.Module):
    """What follows Llama's blocks, up to the loss."""

    def __init__(self, vocabulary: int = 128256, width: int = 4096) -> None:
        super().__init__()
        self.norm, self.out = nn.RMSNorm(width, eps=1e-5), nn.Linear(width, vocabulary, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits = self.out(self.norm(x)).flatten(0, 1)
        return F.cross_entropy(logits, torch.zeros(len(logits), dtype=torch.long, device=x.device))


class Lora(nn.Module):
    """A frozen linear layer with an adapter of rank 16."""

    def __init__(self, frozen: nn.Linear) -> None:
        super().__init__()
        self.frozen = frozen.requires_grad_(False)
        self.down = nn.Linear(frozen.in_features, 16, bias=False)
        self.up = nn.Linear(16, frozen.out_features, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.frozen(x) + self.up(self.down(x))


def with_adapters(block: LlamaBlock, names: tuple[str, ...]) -> LlamaBlock:
    """A frozen block with adapters on these layers."""
    block.requires_grad_(False)
    for name in names:
        setattr(block, name, Lora(getattr(block, name)))
    return block


class TransformerBlock(nn.Module):
    """Of GPT-2 and of vision transformers."""

    def __init__(self, width: int, heads: int, dropout: float, causal: bool) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.heads, self.dropout, self.causal = heads, nn.Dropout(dropout), causal

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (part.unflatten(-1, (self.heads, -1)) for part in self.qkv(self.before(x)).chunk(3, -1))
        x = x + self.dropout(self.out(attention(q, k, v, is_causal=self.causal).flatten(2)))
        return x + self.dropout(self.down(F.gelu(self.up(self.between(x)))))


class Bottleneck(nn.Module):
    """Of ResNet-50."""

    def __init__(self, given: int, inside: int, stride: int) -> None:
        super().__init__()
        self.first, self.a = nn.Conv2d(given, inside, 1, bias=False), nn.BatchNorm2d(inside)
        self.second = nn.Conv2d(inside, inside, 3, stride, padding=1, bias=False)
        self.b = nn.BatchNorm2d(inside)
        self.third, self.c = nn.Conv2d(inside, 4 * inside, 1, bias=False), nn.BatchNorm2d(4 * inside)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = None
        if stride != 1 or given != 4 * inside:
            widened = nn.Conv2d(given, 4 * inside, 1, stride, bias=False)
            self.shortcut = nn.Sequential(widened, nn.BatchNorm2d(4 * inside))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        same = x if self.shortcut is None else self.shortcut(x)
        y = self.relu(self.b(self.second(self.relu(self.a(self.first(x))))))
        return self.relu(self.c(self.third(y)) + same)


def resnet50() -> list[nn.Module]:
    blocks, given = [], 64
    for number, (inside, count) in enumerate([(64, 3), (128, 4), (256, 6), (512, 3)]):
        for index in range(count):
            blocks.append(Bottleneck(given, inside, 2 if number and not index else 1))
            given = 4 * inside
    return blocks


class UnetBlock(nn.Module):
    """A residual block of a diffusion U-Net, without the embedding of time."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.a, self.b = nn.GroupNorm(32, channels), nn.GroupNorm(32, channels)
        self.first, self.second = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.second(F.silu(self.b(self.first(F.silu(self.a(x))))))
