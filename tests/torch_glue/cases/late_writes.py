# SPDX-License-Identifier: Apache-2.0
"""Operators and functions that write a tensor after they have saved it have plain's gradients."""

import spillway
import torch
import torch.nn.functional as F
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.function import once_differentiable
from torch.fx.experimental.proxy_tensor import make_fx

from cases import case
from cases.measure import Copied, same_bits

COUNT = 1 << 14


def offloaded():
    return spillway.compat.OffloadActivations(min_offload_size=0)


def gradient(forward, seed=5):
    torch.manual_seed(seed)
    torch.cuda.manual_seed_all(seed)
    x = torch.linspace(-3, 3, COUNT, device="cuda").requires_grad_()
    forward(x * 1).sum().backward()
    return x.grad


def inside(region, function):
    def forward(x):
        with region():
            return function(x)

    return forward


def in_each_way(function):
    """Has plain's gradient in regions, recomputed, and at the end of checkpoints."""
    plain = gradient(function)
    with Copied() as copied:
        assert same_bits(gradient(inside(offloaded, function)), plain)
    assert copied.out > 0
    ways = [
        inside(lambda: spillway.CPUOffload(1.0, tag="late"), function),
        inside(spillway.recompute, function),
        lambda x: spillway.checkpoint(function, x),
        lambda x: spillway.checkpoint(function, x, offload_to_cpu=True),
        lambda x: spillway.checkpoint(lambda y: spillway.checkpoint(function, y), x),
        inside(offloaded, lambda x: spillway.checkpoint(function, x)),
        lambda x: spillway.checkpoint(inside(offloaded, function), x),
    ]
    for number, way in enumerate(ways):
        assert same_bits(gradient(way), plain), number


@case
def rrelu_has_plains_gradient_wherever_its_noise_goes():
    in_each_way(lambda x: F.rrelu(x, training=True))


@case
def rrelu_in_place_has_plains_gradient_wherever_its_noise_goes():
    in_each_way(lambda x: F.rrelu_(x * 2, training=True))


@case
def noise_that_the_caller_gives_is_saved_after_it_is_written():
    def given(x):
        noise = torch.full_like(x, 7.0)
        return torch._C._nn.rrelu_with_noise(x, noise, 0.1, 0.3, True)

    in_each_way(given)
    # A part of a larger storage is written, and the rest has been there before.
    whole = torch.zeros(2 * COUNT, device="cuda")
    in_each_way(lambda x: torch._C._nn.rrelu_with_noise(x, whole[COUNT:], 0.1, 0.3, True))


@case
def the_noise_of_rrelu_moves_with_the_rest():
    with Copied() as copied:
        gradient(inside(offloaded, lambda x: F.rrelu(x, training=True)))
    assert copied.out == 2 * COUNT * 4, copied.out  # what it was given, and its noise


@case
def rrelu_between_other_operators_of_a_checkpoint_has_plains_gradient():
    in_each_way(lambda x: F.rrelu(x.sin(), training=True).cos() * 3)


class FilledLater(torch.autograd.Function):
    """Hands a buffer over to be saved, and writes it afterwards, in its own forward pass."""

    @staticmethod
    def forward(ctx, x, write):
        kept = torch.empty_like(x)
        ctx.save_for_backward(kept)
        write(x, kept)
        return x * kept

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):
        (kept,) = ctx.saved_tensors
        return gradient * kept, None


@case
def a_custom_function_may_write_what_it_has_handed_over_to_be_saved():
    stream = torch.cuda.Stream()

    def on_another_stream(x, kept):
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            torch.mul(x, 3, out=kept)
        torch.cuda.current_stream().wait_stream(stream)

    for write in (
        lambda x, kept: kept.copy_(x.cos()),
        lambda x, kept: torch.sin(x, out=kept),
        lambda x, kept: kept.data.copy_(x.exp()),
        lambda x, kept: kept.detach().view(2, -1).uniform_(),
        on_another_stream,
    ):
        in_each_way(lambda x, write=write: FilledLater.apply(x, write))


@case
def operators_that_write_late_can_be_traced():
    def noisy(x):
        return torch.ops.aten.rrelu_with_noise(x, torch.empty_like(x), 0.1, 0.3, True)

    def normalized(x):
        scale, shift = torch.ones_like(x[0]), torch.zeros_like(x[0])
        mean, var = torch.zeros_like(x[0]), torch.ones_like(x[0])
        return torch.ops.aten._native_batch_norm_legit(x, scale, shift, mean, var, True, 0.1, 1e-5)[0]

    with offloaded():  # what watches them is there from now on
        for function in (noisy, normalized):
            x = torch.randn(32, 64, device="cuda", requires_grad=True)
            shape = function(x).shape
            with FakeTensorMode() as mode:
                fake = mode.from_tensor(x)
                assert function(fake).shape == shape
                with enable_python_dispatcher():
                    assert function(fake).shape == shape
            traced = make_fx(function, tracing_mode="symbolic")(x)
            assert traced(x).shape == torch.func.functionalize(function)(x).shape == shape
            assert torch.compile(function, backend="aot_eager")(x).shape == shape
