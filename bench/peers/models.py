# SPDX-License-Identifier: Apache-2.0
"""Three small models, each with a head called `output`, where every system looks for it."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

WIDTH = 128
HEADS = 4
WORDS = 256
LENGTH = 64
BATCH = 8
LAYERS = 4


class Adapted(nn.Module):
    """A frozen linear layer with a low-rank adapter."""

    def __init__(self, base: nn.Linear, rank: int = 8) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + self.up(self.down(x))


class Block(nn.Module):
    """Attention with separate projections, as Llama's, and a gated feed-forward layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.gate, self.up = (nn.Linear(WIDTH, 2 * WIDTH, bias=False) for _ in range(2))
        self.down = nn.Linear(2 * WIDTH, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        q, k, v = (
            part(y).view(*y.shape[:2], HEADS, WIDTH // HEADS).transpose(1, 2)
            for part in (self.q, self.k, self.v)
        )
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).reshape(x.shape))
        y = self.second(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


class Gpt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(WIDTH)
        self.output = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.words(words) + self.places.weight[: words.shape[1]]
        return self.output(self.norm(self.blocks(x)))


class Residual(nn.Module):
    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(outside) for _ in range(2))
        self.shortcut = nn.Conv2d(inside, outside, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norms[0](self.first(x)).relu()
        return (self.norms[1](self.second(y)) + self.shortcut(x)).relu()


class ResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, 1, 1)
        self.stages = nn.Sequential(Residual(16, 16, 1), Residual(16, 32, 2), Residual(32, 64, 2))
        self.output = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.output(self.stages(self.stem(x)).mean((2, 3)))


def gpt() -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    return Gpt().cuda(), torch.randint(WORDS, (BATCH, LENGTH)).cuda()


def resnet() -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    batch = torch.randn(16, 3, 32, 32)
    return (
        ResNet().cuda().to(memory_format=torch.channels_last),
        batch.cuda().to(memory_format=torch.channels_last),
    )


def lora() -> tuple[nn.Module, torch.Tensor]:
    """Adapters on two projections of each block of a frozen model."""
    torch.manual_seed(0)
    model = Gpt().requires_grad_(False)
    for block in model.blocks:
        block.q, block.v = Adapted(block.q), Adapted(block.v)
        nn.init.normal_(block.q.up.weight)
        nn.init.normal_(block.v.up.weight)
    return model.cuda(), torch.randint(WORDS, (BATCH, LENGTH)).cuda()


MODELS = {"GPT": gpt, "ResNet, channels last": resnet, "LoRA on a frozen GPT": lora}
