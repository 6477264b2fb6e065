# SPDX-License-Identifier: Apache-2.0
"""Models whose cheap activations are recomputed, alone and with the other ways."""

import contextlib

import spillway
import torch
from torch import nn
from torch.nn import functional as F

from cases import case, case_of
from cases.beside_plain import keeping, left, random
from cases.measure import last, plenty, same


class LlamaBlock(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.before, self.between = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.gate, self.up = (nn.Linear(width, hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        q, k, v = (
            part.unflatten(-1, (4, -1)).transpose(1, 2) for part in self.qkv(self.before(x)).chunk(3, -1)
        )
        attention = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attention.transpose(1, 2).flatten(2))
        y = self.between(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class GptBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = (
            part.unflatten(-1, (4, -1)).transpose(1, 2) for part in self.qkv(self.before(x)).chunk(3, -1)
        )
        attention = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + F.dropout(self.out(attention.transpose(1, 2).flatten(2)), 0.1, self.training)
        return x + F.dropout(self.down(F.gelu(self.up(self.between(x)))), 0.1, self.training)


class Bottleneck(nn.Module):
    def __init__(self, channels):
        super().__init__()
        inside = channels // 4
        self.first, self.a = nn.Conv2d(channels, inside, 1, bias=False), nn.BatchNorm2d(inside)
        self.second, self.b = nn.Conv2d(inside, inside, 3, padding=1, bias=False), nn.BatchNorm2d(inside)
        self.third, self.c = nn.Conv2d(inside, channels, 1, bias=False), nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        y = self.relu(self.b(self.second(self.relu(self.a(self.first(x))))))
        return self.relu(self.c(self.third(y)) + x)


class UnetBlock(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.a, self.b = nn.GroupNorm(8, channels), nn.GroupNorm(8, channels)
        self.first, self.second = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))

    def forward(self, x):
        return x + self.second(F.silu(self.b(self.first(F.silu(self.a(x))))))


def stem(blocks, shape):
    """Blocks behind a layer whose result they alone use."""
    if len(shape) == 4:
        return nn.Sequential(nn.Conv2d(shape[1], shape[1], 3, padding=1), *blocks), shape
    return nn.Sequential(nn.Linear(shape[-1], shape[-1]), *blocks), shape


MODELS = {
    "llama": (lambda: stem([LlamaBlock(64, 224) for _ in range(3)], (2, 32, 64)), 0.38),
    "gpt": (lambda: stem([GptBlock(64) for _ in range(3)], (2, 32, 64)), 0.37),
    "resnet": (lambda: stem([Bottleneck(32) for _ in range(8)], (4, 32, 8, 8)), 0.35),
    "unet": (lambda: stem([UnetBlock(16) for _ in range(4)], (4, 16, 8, 8)), 0.5),
}


#: The type of the model, and that which autocast casts to.
PRECISIONS = {
    "float32": (torch.float32, None),
    "bfloat16": (torch.bfloat16, None),
    "autocast": (torch.float32, torch.bfloat16),
}


def trained(name, region, precision, steps=20):
    """Losses of all steps, the last one's gradients, and what the model has become."""
    torch.manual_seed(3)
    net, shape = MODELS[name][0]()
    dtype, cast = PRECISIONS[precision]
    net = net.to("cuda", dtype)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        with region(), torch.autocast("cuda", cast or torch.bfloat16, enabled=cast is not None):
            loss = net(random(*shape, dtype=dtype, seed=step)).float().square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return [*losses, *(weight.grad for weight in net.parameters()), *net.state_dict().values()]


def model_trains_alike(name):
    for precision in PRECISIONS:
        expected = trained(name, keeping, precision)
        kept = last("kept")["offloadable_bytes"]
        assert same(expected, trained(name, spillway.recompute, precision)), precision
        released, made = left()
        # Autocast keeps the casts of what a norm gives in float32, too.
        assert released >= MODELS[name][1] * kept or precision == "autocast", (precision, released, kept)
        assert made >= released > 0, (precision, released, made)


for model in MODELS:
    case_of(f"{model}_trains_alike_with_its_share_of_bytes_recomputed", model_trains_alike, model)


@case
def the_weights_that_autocast_has_cast_are_not_held():
    def run(region):
        torch.manual_seed(0)
        layers = nn.Sequential(*(nn.Linear(512, 512) for _ in range(4))).cuda()
        x = random(8, 512)
        before = torch.cuda.memory_allocated()
        with region, torch.autocast("cuda", torch.bfloat16):
            loss = layers(x).float().square().mean()
        held = torch.cuda.memory_allocated() - before
        loss.backward()
        return held, [weight.grad for weight in layers.parameters()]

    held, expected = run(keeping())
    held_less, actual = run(spillway.recompute())
    assert same(expected, actual)
    # But for the first one, whose input needs no gradient.
    assert held - held_less >= 3 * 512 * 512 * 2, (held, held_less)
    released, made = left()
    assert made == released >= 3 * 512 * 512 * 2


def blocks_trained(around, change=lambda block: block):
    """Parameters after three steps of three micro-batches each."""
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(64, 64), *[change(LlamaBlock(64, 224)) for _ in range(3)]).cuda()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    for step in range(3):
        with around():
            losses = [net(random(2, 16, 64, seed=10 * step + i)).square().mean() for i in range(3)]
            for loss in losses:
                loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return list(net.state_dict().values())


@contextlib.contextmanager
def both(outer, inner):
    with outer, inner:
        yield


@case
def other_ways_around_and_inside_have_the_same_bits():
    plain = blocks_trained(keeping)
    ways = {
        "manager": lambda: spillway.compat.OffloadActivations(),
        "micro-batches": lambda: spillway.microbatches(activation_loading_horizon=1),
        "budget": lambda: spillway.offload(budget=plenty()),
    }
    for name, way in ways.items():
        assert same(plain, blocks_trained(lambda way=way: both(way(), spillway.recompute()))), name
        assert same(plain, blocks_trained(lambda way=way: both(spillway.recompute(), way()))), name

    def checkpointed(block):
        return spillway.checkpoint_wrapper(block, offload_to_cpu=True)

    # The wrapper's name is not in its keys, so the lists compare.
    assert same(plain, blocks_trained(spillway.recompute, checkpointed))
