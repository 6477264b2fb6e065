# SPDX-License-Identifier: Apache-2.0
"""Small training runs of several kinds, whose allocations a dry run must make just as a real one does."""

import sys
from itertools import pairwise

import spillway
import torch
import torch.nn.functional as F
from emulated_models import GPT, LENGTH, VOCABULARY
from torch import nn


def unit(before, after):
    return nn.Sequential(nn.Conv2d(before, after, 3, padding=1), nn.GroupNorm(4, after), nn.SiLU())


class UNet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        widths = [3, width, 2 * width, 4 * width]
        self.down = nn.ModuleList(unit(*pair) for pair in pairwise(widths))
        self.middle = unit(4 * width, 8 * width)
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * each, each, 2, 2) for each in widths[:0:-1])
        self.join = nn.ModuleList(unit(2 * each, each) for each in widths[:0:-1])
        self.last = nn.Conv2d(width, 3, 1)

    def forward(self, x):
        kept = []
        for down in self.down:
            kept.append(down(x))
            x = F.max_pool2d(kept[-1], 2)
        x = self.middle(x)
        for up, join in zip(self.up, self.join, strict=True):
            x = join(torch.cat([up(x), kept.pop()], 1))
        return self.last(x)


class Bottleneck(nn.Module):
    """ResNet-50's: a third convolution gives four times the width."""

    def __init__(self, before, width, stride):
        super().__init__()
        shapes = [(before, width, 1, 1), (width, width, 3, stride), (width, 4 * width, 1, 1)]
        self.steps = nn.ModuleList(
            nn.Sequential(nn.Conv2d(i, o, k, s, k // 2, bias=False), nn.BatchNorm2d(o))
            for i, o, k, s in shapes
        )
        self.around = nn.Sequential(
            nn.Conv2d(before, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width)
        )
        self.bends = before != 4 * width or stride != 1

    def forward(self, x):
        y = F.relu(self.steps[1](F.relu(self.steps[0](x))))
        return F.relu(self.steps[2](y) + (self.around(x) if self.bends else x))


class ResNet50(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        stages, before = [], width
        for stage, count in enumerate((3, 4, 6, 3)):
            for place in range(count):
                stride = 2 if stage and not place else 1
                stages.append(Bottleneck(before, width << stage, stride))
                before = 4 * (width << stage)
        self.first = nn.Sequential(
            nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        )
        self.stages = nn.Sequential(*stages)
        self.last = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 10))

    def forward(self, x):
        return self.last(self.stages(self.first(x)))


class Adapted(nn.Module):
    """A frozen linear layer and a trained product of two small ones beside it."""

    def __init__(self, frozen, rank=4):
        super().__init__()
        self.frozen = frozen.requires_grad_(False)
        self.into = nn.Linear(frozen.in_features, rank, bias=False)
        self.out = nn.Linear(rank, frozen.out_features, bias=False)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        return self.frozen(x) + self.out(self.into(self.drop(x)))


def steps(model, loss_of, optimizer, count=3):
    for _ in range(count):
        loss_of(model).backward()
        optimizer.step()
        optimizer.zero_grad()


def texts(model):
    tokens = torch.randint(VOCABULARY, (8, LENGTH)).to("cuda")
    return F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())


def pictures(order):
    def loss(model):
        x = torch.randn(4, 3, 64, 64).to("cuda", memory_format=order)
        with torch.autocast("cuda", torch.bfloat16, enabled=order == torch.channels_last):
            return F.cross_entropy(model(x), torch.randint(10, (4,)).to("cuda"))

    return loss


def gpt():
    model = GPT(64).to("cuda")
    steps(model, texts, torch.optim.AdamW(model.parameters()))


def gpt_with_offload():
    model = GPT(64).to("cuda")

    def loss(model):
        with spillway.CPUOffload(0.5, tag="half"):
            return texts(model)

    steps(model, loss, torch.optim.AdamW(model.parameters()))


def resnet50():
    model = ResNet50().to("cuda")
    steps(model, pictures(torch.contiguous_format), torch.optim.SGD(model.parameters(), 0.1, momentum=0.9))


def resnet50_channels_last():
    model = ResNet50().to("cuda", memory_format=torch.channels_last)
    steps(model, pictures(torch.channels_last), torch.optim.SGD(model.parameters(), 0.1, momentum=0.9))


def unet():
    model = UNet().to("cuda")

    def loss(model):
        x = torch.randn(2, 3, 32, 32).to("cuda")
        return F.mse_loss(model(x), x)

    steps(model, loss, torch.optim.Adam(model.parameters()))


def lora():
    """Mixed precision with scaled gradients that are clipped."""
    model = GPT(64).requires_grad_(False)
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Linear):
                setattr(parent, name, Adapted(child))
    model.to("cuda")
    trained = [each for each in model.parameters() if each.requires_grad]
    optimizer, scaler = torch.optim.AdamW(trained), torch.amp.GradScaler("cuda")
    for _ in range(3):
        with torch.autocast("cuda", torch.float16):
            loss = texts(model)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(trained, 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()


class Recurrent(nn.Module):
    """Cells of the kind that have kernels of their own, and results that run along a dimension."""

    def __init__(self, width=48):
        super().__init__()
        self.gated, self.long = nn.GRUCell(width, width), nn.LSTMCell(width, width)
        self.bare = nn.GRUCell(width, width, bias=False)

    def forward(self, x):
        state = torch.zeros_like(x[0])
        memory = (state, state)
        found = []
        for each in x:
            state = self.bare(each, self.gated(each, state))
            memory = self.long(state, memory)
            found.append(memory[0])
        found = torch.stack(found)
        return found.logcumsumexp(0) + found.cummax(0).values + found.cummin(1).values


def recurrent():
    model = Recurrent().to("cuda")
    repeats = torch.tensor([1, 3] * 8).to("cuda")

    def loss(model):
        x = torch.randn(6, 16, 48).to("cuda")
        return model(torch.repeat_interleave(x, repeats, dim=1)).square().mean()

    steps(model, loss, torch.optim.Adam(model.parameters()))


CASES = (gpt, gpt_with_offload, resnet50, resnet50_channels_last, unet, lora, recurrent)


def allocations(name, path):
    """Every allocation and free of the run: which block, how large, on which stream, in their order."""
    torch.manual_seed(0)
    spillway.use_allocator()
    with spillway.memory.record_trace(path):
        getattr(sys.modules[__name__], name)()
        torch.cuda.synchronize()
    blocks, found = {}, []
    for kind, _, block, size, _, stream, _ in spillway.memory.read_trace(path).events:
        if kind in ("allocate", "free"):
            found.append((kind, blocks.setdefault(block, len(blocks)), size, stream))
    return found
