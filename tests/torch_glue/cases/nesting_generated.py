# SPDX-License-Identifier: Apache-2.0
"""Random nestings of regions, checkpoints, tags and Python hooks have plain's gradients."""

import os
import random

import spillway
import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint as torch_checkpoint
from torch.utils.checkpoint import set_checkpoint_early_stop

from cases import case
from cases.measure import same

WIDTH = 64
PROGRAMS = 40
DEEPEST = 4


def layers():
    torch.manual_seed(1)
    each = [
        nn.Linear(WIDTH, WIDTH),
        nn.LayerNorm(WIDTH),
        nn.GELU(),
        nn.Dropout(0.3),
        nn.ReLU(),
        nn.Softmax(-1),
        nn.RReLU(),
        nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()),
    ]
    return nn.ModuleList(each).cuda()


def torchs_checkpoint(function, x):
    # Otherwise its second run ends before RReLU has written its noise, if that is saved last: wrong gradients
    # without Spillway, too.
    with set_checkpoint_early_stop(False):
        return torch_checkpoint(function, x, use_reentrant=False)


def within(context):
    """Calls a function inside the context that `context()` makes."""

    def call(function, x):
        with context():
            return function(x)

    return call


AROUND = {
    "CPUOffload": within(lambda: spillway.CPUOffload(1.0, tag="all")),
    "half": within(lambda: spillway.CPUOffload(0.5, tag="half")),
    "OffloadActivations": within(lambda: spillway.compat.OffloadActivations(min_offload_size=0)),
    "recompute": within(spillway.recompute),
    "NoOpManager": within(spillway.compat.NoOpManager),
    "tag": within(lambda: spillway.tag("named")),
    "python hooks": within(lambda: saved_tensors_hooks(torch.Tensor.detach, lambda t: t)),
    "checkpoint": lambda function, x: spillway.checkpoint(function, x),
    "checkpoint on the host": lambda function, x: spillway.checkpoint(function, x, offload_to_cpu=True),
    "torch's checkpoint": torchs_checkpoint,
}


def program(chance, depth=0):
    """A list of layers' numbers, and of (name in AROUND, program) pairs."""
    parts = []
    for _ in range(chance.randint(1, 3)):
        if depth < DEEPEST and chance.random() < 0.6:
            parts.append((chance.choice(sorted(AROUND)), program(chance, depth + 1)))
        else:
            parts.append(chance.randrange(8))
    return parts


def runs(parts, net, plainly):
    def function(x):
        for part in parts:
            if isinstance(part, int):
                x = net[part](x)
            elif plainly:
                x = runs(part[1], net, plainly)(x)
            else:
                x = AROUND[part[0]](runs(part[1], net, plainly), x)
        return x

    return function


def gradients(parts, net, plainly):
    net.zero_grad()
    torch.manual_seed(7)
    x = torch.randn(32, WIDTH, device="cuda", requires_grad=True)
    (runs(parts, net, plainly)(x * 1) * x).square().mean().backward()
    return [x.grad, *(p.grad for p in net.parameters())]


def all_pairs():
    """Each inside each, and with something before and behind."""
    for outer in AROUND:
        for inner in AROUND:
            yield [(outer, [(inner, [1, 0, 2, 6])])]
            yield [(outer, [0, (inner, [1, 0, 2]), 4, 0])]


def have_plains_gradients(programs):
    net = layers()
    for parts in programs:
        plain = gradients(parts, net, plainly=True)
        try:
            ours = gradients(parts, net, plainly=False)
        except RuntimeError as error:
            raise AssertionError(f"{parts} raised: {error}") from error
        assert same(ours, plain), parts


@case
def each_nesting_of_two_has_plains_gradients():
    have_plains_gradients(all_pairs())


@case
def random_nestings_have_plains_gradients():
    seed = int(os.environ.get("TEST_SEED", random.randrange(1 << 32)))
    print(f"TEST_SEED={seed}")
    chance = random.Random(seed)
    have_plains_gradients(program(chance) for _ in range(PROGRAMS))


@case
def a_recomputing_region_inside_a_checkpoint_has_plains_gradients():
    programs = [
        [(outer, [("checkpoint", [(inner, [1, 0, 2, 0])])])]
        for outer in AROUND
        for inner in ("recompute", "CPUOffload", "tag")
    ]
    programs += [[("checkpoint", [("recompute", [(inner, [1, 0, 2, 0]), 0])])] for inner in AROUND]
    programs += [
        [("checkpoint on the host", [("recompute", [(inner, [1, 0, 2, 0]), 0])])] for inner in AROUND
    ]
    have_plains_gradients(programs)
