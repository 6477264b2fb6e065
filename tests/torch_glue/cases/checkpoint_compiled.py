# SPDX-License-Identifier: Apache-2.0
"""Checkpoints and torch.compile, one around the other: the bits are the plain ones, and layers run again."""

import functools
import itertools

import spillway
import torch
from torch import nn

from cases import case_of
from cases.checkpoints import WIDTH, batch
from cases.measure import Copied, same


class Layer(nn.Module):
    """Counts its runs where no compiler takes them away."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.LayerNorm(WIDTH))
        self.runs = 0

    def forward(self, x):
        if not torch.compiler.is_compiling():
            self.runs += 1
        return self.inner(x) * 2


compiled = []
ROWS = itertools.count(8)  # shapes of its own for each model


def backend(graph, inputs):
    """Counts what is compiled with it."""
    from torch._dynamo.backends.debugging import aot_eager

    compiled.append(sum(node.op != "placeholder" for node in graph.graph.nodes))
    return aot_eager(graph, inputs)


def outside(layers, wrap):
    return torch.compile(nn.Sequential(*map(wrap, layers)), backend=backend)


def function_outside(layers, wrap):
    def call(x):
        for layer in layers:
            x = layer(x) if wrap is plain else spillway.checkpoint(layer, x)
        return x * 1

    return torch.compile(call, backend=backend)


def before_wrapping(layers, wrap):
    for layer in layers:
        layer.compile(backend=backend)
    return nn.Sequential(*map(wrap, layers))


def after_wrapping(layers, wrap):
    for layer in layers:
        wrap(layer).compile(backend=backend)
    return nn.Sequential(*layers)


def inside(layers, wrap):
    return nn.Sequential(*(wrap(torch.compile(layer, backend=backend)) for layer in layers))


def plain(layer):
    return layer


def trained(how, wrap, count, input_gradient, rows):
    """Gradients of three steps, runs of the layers, and graphs that were compiled."""
    torch._dynamo.reset()
    torch.manual_seed(1)
    layers = [Layer().cuda() for _ in range(count)]
    call = how(layers, wrap)
    compiled.clear()
    seen = []
    for step in range(3):
        # Nothing but the graph holds what a layer is given.
        leaf = batch(step, rows).requires_grad_(input_gradient)
        call(leaf * 1).square().sum().backward()
        spillway.step()
        seen += [leaf.grad, *(p.grad.clone() for layer in layers for p in layer.parameters())]
    return seen, [layer.runs for layer in layers], sum(compiled)


def has_the_plain_gradients(how):
    for count in (1, 2):
        for input_gradient in (False, True):
            rows = next(ROWS)
            expected, _, operators = trained(how, plain, count, input_gradient, rows)
            assert operators > 0  # all of them in the compiler's hands
            for offload in (False, True):
                wrap = functools.partial(spillway.checkpoint_wrapper, offload_to_cpu=offload)
                with Copied() as copied:
                    found, runs, operators = trained(how, wrap, count, input_gradient, rows)
                assert same(found, expected), (count, input_gradient, offload)
                if how is inside:
                    assert operators > 0 and runs == [0] * count
                else:
                    assert runs == [6] * count, runs  # each layer twice in each step, in Python
                if how is not function_outside:
                    assert (copied.out > 0) == offload, copied.out


for how in (outside, function_outside, before_wrapping, after_wrapping, inside):
    case_of(f"checkpoints_compiled_{how.__name__}_have_the_plain_gradients", has_the_plain_gradients, how)
