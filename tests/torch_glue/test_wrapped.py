# SPDX-License-Identifier: Apache-2.0
"""Tensors of a Python class that wraps others, and has parts that are none."""

import pytest

SOURCE = """
import spillway, torch


class Noted(torch.Tensor):
    @staticmethod
    def __new__(cls, inner, note):
        return torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, strides=inner.stride(), dtype=inner.dtype, device=inner.device
        )

    def __init__(self, inner, note):
        self.inner, self.note = inner, note

    def __tensor_flatten__(self):
        return ["inner", "note"], None

    @staticmethod
    def __tensor_unflatten__(parts, context, size, stride):
        return Noted(parts["inner"], parts["note"])

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        note = next(each.note for each in args if isinstance(each, Noted))
        plain = [each.inner if isinstance(each, Noted) else each for each in args]
        return cls(function(*plain, **(kwargs or {})), note)


class Keep(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, kept):
        ctx.save_for_backward(kept)
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        (kept,) = ctx.saved_tensors
        seen.append([type(kept) is Noted, kept.note is note, torch.equal(kept.inner, numbers())])
        return gradient, None


def numbers():
    return torch.arange(1 << 16, device="cuda").float()


SET_UP
seen, note = [], object()
x = torch.ones(4, device="cuda", requires_grad=True)
with spillway.CPUOffload(1.0, tag="noted"):
    y = Keep.apply(x, Noted(numbers(), note))
y.sum().backward()
report([seen, spillway.stats()["tags"]["noted"]["last"]["offloaded_bytes"]])
"""


@pytest.mark.parametrize("set_up", ["spillway.use_allocator()", ""])
def test_what_is_no_tensor_is_kept_as_it_is(program, set_up):
    assert program(SOURCE.replace("SET_UP", set_up)) == [[[True, True, True]], 4 << 16]


LAZY = """
import spillway, torch
import torch.nn.functional as F


class Lazy(torch.Tensor):
    # As AsyncCollectiveTensor: operators take what it wraps; only detach() and views wrap their result.
    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, strides=inner.stride(), dtype=inner.dtype, device=inner.device
        )

    def __init__(self, inner):
        self.inner = inner

    REFUSES

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        plain = [each.inner if isinstance(each, Lazy) else each for each in args]
        result = function(*plain, **(kwargs or {}))
        wraps = function in (torch.ops.aten.detach.default, torch.ops.aten.view.default)
        return cls(result) if wraps else result


class MakeLazy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return Lazy(x.clone())

    @staticmethod
    def backward(ctx, gradient):
        return gradient.inner if isinstance(gradient, Lazy) else gradient


SIZE = 128
weight = torch.randn(SIZE, SIZE, device="cuda", requires_grad=True)
FUNCTIONS = {
    "sin": lambda y: y * y.sin(),
    "silu": lambda y: F.silu(y).cos(),
    "gelu": lambda y: F.gelu(y) * F.gelu(y),
    "relu": lambda y: F.relu(y).sin(),
    "softmax": lambda y: y.softmax(-1).square(),
    "norm": lambda y: F.layer_norm(y, (SIZE,)).sin(),
    "dropout": lambda y: F.dropout(y, 0.3).sin(),
    "sum": lambda y: (y + 1).sin() * (y - y.cos()).sin(),
    "product": lambda y: (y @ weight).sin() @ weight,
    "linear": lambda y: F.gelu(F.linear(y, weight, weight[0])),
    "cast": lambda y: y.double().sin().float().square(),
    "negated": lambda y: (-y).sin() * y.abs(),
    "view": lambda y: F.silu(y.view(-1)).sin(),
}


def gradients(function, region):
    torch.manual_seed(4)
    torch.cuda.manual_seed_all(4)
    x = torch.randn(SIZE, SIZE, device="cuda", requires_grad=True)
    with region():
        loss = function(MakeLazy.apply(x * 2)).sum()
    return torch.autograd.grad(loss, [x, weight], allow_unused=True)


REGIONS = {
    "offloaded": lambda: spillway.CPUOffload(1.0, tag="lazy"),
    "recomputed": spillway.recompute,
    "in a budget": lambda: spillway.offload(budget="1GiB"),
}
wrong = []
for name, function in FUNCTIONS.items():
    plain = gradients(function, spillway.compat.NoOpManager)
    for region in REGIONS:
        for _ in range(3):
            found = gradients(function, REGIONS[region])
            if not all(a is b or torch.equal(a, b) for a, b in zip(found, plain)):
                wrong.append([name, region])
report(wrong)
"""


@pytest.mark.parametrize("refuses", ["pass", "__tensor_flatten__ = lambda self: 1 / 0"])
def test_recomputation_does_not_run_below_the_dispatch_of_a_wrapper(program, refuses):
    assert program(LAZY.replace("REFUSES", refuses)) == []
