# SPDX-License-Identifier: Apache-2.0
"""Training runs whose allocations are recorded: `python -m bench.fragmentation.workloads NAME FILE`.

Small enough for a CPU; the replay multiplies the sizes. Shapes are drawn from fixed seeds.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace

import spillway
import torch
import torch.nn.functional as F
from spillway.demo import data
from spillway.demo.model import SIZES, Batches, Gpt
from torch import Tensor, nn

Step = Callable[[], Tensor]  # a forward pass up to the loss


def train(model: nn.Module, losses: Iterator[Step], make: type[torch.optim.Optimizer], **options) -> None:
    optimizer = make(model.parameters(), **options)
    for forward in losses:
        loss = forward()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def demo() -> None:
    """The demonstration's GPT, half of what it saves away."""
    size = SIZES["demo"]
    model = Gpt(size).to("cuda")
    batches = Batches(data.standard_library(), size, seed=0)

    def losses() -> Iterator[Step]:
        for step in range(4):
            tokens, targets = batches.at(step, "cuda")

            def forward(tokens: Tensor = tokens, targets: Tensor = targets) -> Tensor:
                with spillway.CPUOffload(0.5, tag="demo"):
                    return model(tokens, targets)

            yield forward

    train(model, losses(), torch.optim.AdamW, lr=1e-3)


class Basic(nn.Module):
    """Two convolutions and the way around them."""

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(before, width, 3, stride, 1, bias=False)
        self.norm_first = nn.BatchNorm2d(width)
        self.second = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.norm_second = nn.BatchNorm2d(width)
        self.around = (
            nn.Identity()
            if stride == 1 and before == width
            else nn.Sequential(nn.Conv2d(before, width, 1, stride, bias=False), nn.BatchNorm2d(width))
        )

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm_first(self.first(x)))
        return F.relu(self.norm_second(self.second(y)) + self.around(x))


def residual_network(widths: tuple[int, ...] = (16, 32, 64, 128)) -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(3, widths[0], 3, 1, 1, bias=False), nn.BatchNorm2d(widths[0])]
    before = widths[0]
    for place, width in enumerate(widths):
        layers += [Basic(before, width, 2 if place else 1), Basic(width, width, 1)]
        before = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 100))


def images(model: nn.Module, sizes: Iterator[int], edge: int) -> Iterator[Step]:
    for size in sizes:
        x = torch.randn(size, 3, edge, edge).to("cuda")
        y = torch.randint(100, (size,)).to("cuda")
        yield lambda x=x, y=y: F.cross_entropy(model(x), y)


def resnet() -> None:
    """A residual network of 18 layers with momentum, always the same batch."""
    model = residual_network().to("cuda")
    train(model, images(model, iter([16] * 4), 64), torch.optim.SGD, lr=0.1, momentum=0.9)


def batch() -> None:
    """The same network, another number of images in each step."""
    model = residual_network().to("cuda")
    drawn = random.Random(1)
    sizes = iter([drawn.randint(4, 32) for _ in range(16)])
    train(model, images(model, sizes, 32), torch.optim.SGD, lr=0.1, momentum=0.9)


def length() -> None:
    """A GPT over texts of another length in each step."""
    size = replace(SIZES["demo"], context=256, width=128, batch=4)
    model = Gpt(size).to("cuda")
    drawn = random.Random(2)

    def losses() -> Iterator[Step]:
        for step in range(16):
            short = replace(size, context=drawn.randint(24, 256))
            tokens, targets = Batches(data.standard_library(), short, seed=step).at(step, "cuda")
            yield lambda tokens=tokens, targets=targets: model(tokens, targets)

    train(model, losses(), torch.optim.AdamW, lr=1e-3)


WORKLOADS = {function.__name__: function for function in (demo, resnet, batch, length)}


if __name__ == "__main__":
    torch.manual_seed(0)
    spillway.use_allocator()
    with spillway.memory.record_trace(sys.argv[2]):
        WORKLOADS[sys.argv[1]]()
        torch.cuda.synchronize()
