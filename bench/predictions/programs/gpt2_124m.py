# SPDX-License-Identifier: Apache-2.0
"""A step of a model of GPT-2's smallest shape in float32, 4 sequences of 1024 tokens, of plain operators:
attention with its scores in memory, GELU's tanh form written out, Adam as it comes.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable

import torch
from measure import measured
from torch import nn
from torch.nn import functional

WORDS, LENGTH, WIDTH, HEADS, LAYERS, BATCH = 50257, 1024, 768, 12, 12, 4


def gelu(x: torch.Tensor) -> torch.Tensor:
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.all, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.register_buffer("seen", torch.tril(torch.ones(LENGTH, LENGTH))[None, None])

    def attend(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = (
            part.view(*x.shape[:2], HEADS, -1).transpose(1, 2) for part in self.all(x).split(WIDTH, dim=2)
        )
        scores = (query @ key.transpose(-2, -1)) * (1.0 / math.sqrt(key.shape[-1]))
        shares = functional.softmax(scores.masked_fill(self.seen == 0, float("-inf")), dim=-1)
        return self.out((shares @ value).transpose(1, 2).contiguous().view(x.shape))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attend(self.norms[0](x))
        return x + self.down(gelu(self.up(self.norms[1](x))))


class Gpt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.layers = nn.Sequential(*(Layer() for _ in range(LAYERS)))
        self.norm, self.output = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)
        self.output.weight = self.words.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        logits = self.output(self.norm(self.layers(x)))
        return functional.cross_entropy(logits.view(-1, WORDS), tokens.roll(-1, 1).view(-1))


def trainer(options: argparse.Namespace) -> Callable[[], None]:
    if options.tensorcores:
        torch.set_float32_matmul_precision("high")
    with torch.device("cuda"):
        model = Gpt()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    call = torch.compile(model) if options.compile else model
    tokens = torch.randint(WORDS, (BATCH, LENGTH), device="cuda")

    def step() -> None:
        loss = call(tokens)
        if options.forward:
            return
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--forward", action="store_true", help="no more than the loss")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--tensorcores", action="store_true", help="TF32")
    measured(trainer(parser.parse_args()), tokens=BATCH * LENGTH)


main()
