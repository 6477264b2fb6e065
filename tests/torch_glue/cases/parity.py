# SPDX-License-Identifier: Apache-2.0
"""Training is bit-identical to training without Spillway."""

import functools

import spillway
import torch
from torch import nn

from cases import case
from cases.measure import Copied, same_bits


def mlp():
    return nn.Sequential(
        nn.Linear(32, 256), nn.GELU(), nn.LayerNorm(256), nn.Dropout(0.3), nn.Linear(256, 32)
    )


def convolutions():
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 8, 3),
    ).to(memory_format=torch.channels_last)


def attention():
    return nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True)


def pictures():
    return torch.randn(4, 3, 16, 16, device="cuda").to(memory_format=torch.channels_last)


def rows():
    return torch.randn(64, 32, device="cuda")


def sequences():
    return torch.randn(4, 16, 32, device="cuda")


def train(build, batch, region):
    """Losses, gradients and parameters of four steps."""
    torch.manual_seed(7)
    net = build().cuda()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    seen = []
    for _ in range(4):
        with region():
            loss = net(batch()).square().mean()
        loss.backward()
        seen.append(loss.detach().clone())
        seen.extend(p.grad.clone() for p in net.parameters())
        optimizer.step()
        optimizer.zero_grad()
    return seen + [p.detach().clone() for p in net.parameters()]


def equal_to_plain(build, batch, ratio):
    from contextlib import nullcontext

    plain = train(build, batch, nullcontext)
    with Copied() as copied:
        offloaded = train(build, batch, lambda: spillway.CPUOffload(ratio))
    assert len(plain) == len(offloaded) > 8
    assert all(same_bits(a, b) for a, b in zip(plain, offloaded, strict=True))
    assert (copied.out > 0) == (ratio > 0), copied.out
    assert (copied.back > 0) == (ratio > 0), copied.back


for build, batch in ((mlp, rows), (convolutions, pictures), (attention, sequences)):
    for ratio in (0, 0.5, 1):
        claim = functools.partial(equal_to_plain, build, batch, ratio)
        claim.__name__ = f"training_{build.__name__}_with_ratio_{ratio}_equals_plain_bit_for_bit"
        case(claim)
