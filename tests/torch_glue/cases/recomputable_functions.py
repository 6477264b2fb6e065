# SPDX-License-Identifier: Apache-2.0
"""Custom autograd functions that are declared recomputable give the bits of the first time."""

import threading

import spillway
import torch
from torch.nn import functional as F

from cases import case, case_of
from cases.beside_plain import keeping, left, random
from cases.functions import (
    Called,
    Cast,
    CastInputs,
    Chosen,
    Cube,
    Doubled,
    Dropped,
    Inherited,
    Normalized,
    Swish,
    WithGradient,
)
from cases.measure import last, same

N = 96  # elements of a side


@spillway.recomputable
class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        product = x @ w
        ctx.save_for_backward(x, w, product)
        return product.tanh()

    @staticmethod
    def backward(ctx, grad):
        x, w, product = ctx.saved_tensors
        grad = grad / product.cosh().square()
        return grad @ w.t(), x.t() @ grad


def autocast(function):
    def call(x, w):
        with torch.autocast("cuda", torch.bfloat16):
            return function(x, w)

    return call


FUNCTIONS = {
    "intermediate_and_result": lambda x, w: Swish.apply(x * 1),
    "with_a_number": lambda x, w: Swish.apply(x * 1, 0.7),
    "of_a_transposed_input": lambda x, w: Normalized.apply(F.silu(x).t(), w[0], 1e-5)[0],
    "view_of_a_tensor_written_in_place": lambda x, w: Normalized.apply(x.view(2, N // 2, N), w[0], 1e-5)[0],
    "second_result": lambda x, w: Normalized.apply(x, w[0], 1e-5)[1],
    "context_set_up_separately": lambda x, w: Cube.apply(x * 1)[0],
    "both_gradients": lambda x, w: Chosen.apply(x, w),
    "one_gradient": lambda x, w: Chosen.apply(x * 1, w.detach()),
    "under_autocast": autocast(Cast.apply),
    "without_autocast": Cast.apply,
    "with_cast_inputs": autocast(CastInputs.apply),
    "random_numbers": lambda x, w: Dropped.apply(x * 1, 0.4),
    "gradient_in_forward": lambda x, w: WithGradient.apply(x * 1) * w,
    "result_of_a_result": lambda x, w: F.silu(Swish.apply(Swish.apply(x @ w))),
}


def gradients(function, region):
    """Of the inputs, and the loss. Each pass begins with the same random numbers."""
    torch.manual_seed(7)
    x, w = random(N, N).requires_grad_(), random(N, N, seed=1).requires_grad_()
    factor = random(1, seed=9).requires_grad_()
    with region:
        loss = (function(x, w).float() * factor).sum()  # the product saves the result
    drawn = torch.rand(1, device="cuda"), torch.rand(1)
    loss.backward()
    return [loss.detach(), *drawn, torch.rand(1, device="cuda"), factor.grad] + [
        each.grad for each in (x, w) if each.grad is not None
    ]


def function_gives_the_same_bits(function):
    expected = gradients(function, keeping())
    kept = last("kept")["offloadable_bytes"]
    for _ in range(2):
        assert same(expected, gradients(function, spillway.recompute()))
        released, again = left()
        assert N * N * 4 <= released <= kept, (released, kept)
        assert again == released, (released, again)


for name, function in FUNCTIONS.items():
    case_of(f"recomputable_function_{name}", function_gives_the_same_bits, function)


def nothing_is_recomputed(function):
    expected = gradients(function, keeping())
    assert same(expected, gradients(function, spillway.recompute()))
    assert left() == (0, 0), left()


for name, function in {
    "that_is_expensive": Product.apply,
    "that_writes_to_its_argument": lambda x, w: Doubled.apply(x * 1),
    "with_an_object_among_its_arguments": lambda x, w: Called.apply(x, torch.sin),
    "that_is_a_subclass_of_a_recomputable_one": lambda x, w: Inherited.apply(x),
}.items():
    case_of(f"without_a_budget_a_function_{name}_is_kept", nothing_is_recomputed, function)


@case
def under_a_budget_an_expensive_function_is_recomputed():
    expected = gradients(Product.apply, keeping())
    with_budget = spillway.offload(budget="1GiB", tag="function")
    assert same(expected, gradients(Product.apply, with_budget))
    step = last("function")
    assert step["recomputed_bytes"] >= step["left_to_recompute_bytes"] == 2 * N * N * 4, step
    spillway.step()


@case
def a_function_runs_again_with_the_strides_of_its_arguments():
    from spillway._repeated_function import _Call

    strides = []

    class Strides(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            strides.append(x.stride())
            return x + 0

    x = random(8, 4)
    result = _Call(Strides, [x.t()]).again([x.t().contiguous()], False, 0)
    assert strides == [(1, 4)] and same([x.t()], [result])


@case
def a_changed_argument_of_a_recomputable_function_is_detected():
    x, w = random(N, N).requires_grad_(), random(N, N, seed=1).requires_grad_()
    with spillway.recompute():
        h = x * 1
        loss = (Swish.apply(h) @ w).sum()
    h.detach().add_(1)
    try:
        loss.backward()
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error), error
    else:
        raise AssertionError("the edit went unnoticed")


@case
def a_retained_graph_recomputes_a_function_for_each_pass():
    x = random(N, N).requires_grad_()
    with spillway.recompute():
        loss = Swish.apply(x * 1).square().sum()
    grads = [torch.autograd.grad(loss, [x], retain_graph=True)[0] for _ in range(3)]
    assert same(grads[:1] * 2, grads[1:])


@case
def two_threads_may_need_the_same_function():
    """A recomputation is not within a lock for which a thread with Python's lock may wait."""
    inside, seen = [], []

    @spillway.recomputable(cheap=True)
    class Meeting(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x.exp()
            ctx.save_for_backward(x, y)
            if inside and not seen:
                other = threading.Thread(target=lambda: seen.append(inside[0].saved_tensors[1].sum().item()))
                seen.append(None)
                other.start()
                other.join()
            return y.sum()

        @staticmethod
        def backward(ctx, grad):
            return grad * ctx.saved_tensors[1]

    x = random(N, N).requires_grad_()
    with spillway.recompute():
        y = Meeting.apply(x * 1)
    inside.append(y.grad_fn)
    y.backward()
    assert same([x.grad], [x.detach().exp()])
    assert seen == [None, x.detach().exp().sum().item()], seen


def raised(function):
    x = random(N, N).requires_grad_()
    with spillway.recompute():
        loss = function.apply(x * 1)
    try:
        loss.backward()
    except Exception as error:
        return error
    raise AssertionError("no error")


@case
def an_error_of_the_second_run_is_raised_as_it_is():
    runs = []

    @spillway.recomputable(cheap=True)
    class Failing(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            if runs:
                raise LookupError("in the second run")
            runs.append(1)
            ctx.save_for_backward(x, x.exp())
            return x.sum()

        backward = Swish.backward

    assert repr(raised(Failing)) == "LookupError('in the second run')"


@case
def a_second_run_that_saves_other_tensors_is_an_error():
    runs = []

    @spillway.recomputable(cheap=True)
    class Forgetful(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x, *[] if runs else [x.exp()])
            runs.append(1)
            return x.sum()

        @staticmethod
        def backward(ctx, grad):
            return grad * ctx.saved_tensors[1]

    assert "Forgetful: forward returned or saved other tensors" in str(raised(Forgetful))


@case
def what_is_no_function_is_not_recomputable():
    for wrong in (3, torch.sin, torch.nn.Linear, torch.autograd.Function, Swish.apply):
        try:
            spillway.recomputable(wrong)
        except TypeError as error:
            assert "function must be a subclass of torch.autograd.Function" in str(error), error
        else:
            raise AssertionError(wrong)


@case
def a_function_may_be_declared_twice():
    apply = Product.apply.__func__
    assert spillway.recomputable(Product) is Product and Product.apply.__func__ is apply
