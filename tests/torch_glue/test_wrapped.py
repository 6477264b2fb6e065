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
report([seen, spillway.stats()["tags"]["noted"]["last"]["moved_bytes"]])
"""


@pytest.mark.parametrize("set_up", ["spillway.use_allocator()", ""])
def test_what_is_no_tensor_is_kept_as_it_is(program, set_up):
    assert program(SOURCE.replace("SET_UP", set_up)) == [[[True, True, True]], 4 << 16]
