# SPDX-License-Identifier: Apache-2.0
"""In-place operators and the clones that autograd makes before them are recomputed with the same bits."""

import spillway
import torch
from torch.nn import functional as F

from cases import case, case_of
from cases.beside_plain import keeping, left, random
from cases.measure import an_edit_is_noticed, plenty, same

WHOLE = 64 * 64 * 4


def normalized(x):
    return F.layer_norm(x, (64,))


# Each writes over its operand, whose clone autograd saves for the gradient.
CLONED = {
    "silu": lambda h: F.silu(h, inplace=True),
    "mish": lambda h: F.mish(h, inplace=True),
    "hardswish": lambda h: F.hardswish(h, inplace=True),
    "hardsigmoid": lambda h: F.hardsigmoid(h, inplace=True),
    "hardtanh": lambda h: F.hardtanh(h, -0.5, 0.25, inplace=True),
    "relu6": lambda h: F.relu6(h, inplace=True),
    "gelu": lambda h: torch.ops.aten.gelu_(h),
    "gelu_of_tanh": lambda h: torch.ops.aten.gelu_(h, approximate="tanh"),
}
# Each saves its result instead.
SAVED = {
    "leaky_relu": lambda h: F.leaky_relu(h, 0.2, inplace=True),
    "elu": lambda h: F.elu(h, 0.7, inplace=True),
    "relu": lambda h: F.relu(h, inplace=True),
}


def gradients(function, region, autocast=False, edit=None):
    """Of two inputs. The product behind the function saves its result."""
    x, w = random(64, 64).requires_grad_(), random(64, 64, seed=1).requires_grad_()
    with region, torch.autocast("cuda", torch.bfloat16, enabled=autocast):
        y = function(x, x @ w)
        loss = (y @ w).float().sum()
        if edit is not None:
            edit(y)
        del y
    return torch.autograd.grad(loss, [x, w])


def equals_plain(function, least=0, most=None, autocast=False):
    """`least` and `most`: bytes that are released and recomputed, by `recompute()` alone."""
    expected = gradients(function, keeping(), autocast)
    for region in (spillway.recompute, lambda: spillway.offload(budget=plenty(), tag="in-place")):
        assert same(expected, gradients(function, region(), autocast))
        spillway.step()
    assert same(expected, gradients(function, spillway.recompute(), autocast))
    released, made = left()
    assert least <= released <= (released if most is None else most), (released, least, most)
    assert made == released, (released, made)


def in_place_activation(activation, size):
    equals_plain(lambda x, y: activation(normalized(y)), least=size * WHOLE)
    equals_plain(lambda x, y: activation(normalized(y).bfloat16()).float(), least=size * WHOLE // 2)
    equals_plain(lambda x, y: activation(normalized(y)).to(y.dtype), autocast=True)


for kind, size in ((CLONED, 2), (SAVED, 1)):
    for name, activation in kind.items():
        case_of(f"{name}_in_place_is_recomputed_bit_for_bit", in_place_activation, activation, size)


@case
def a_clone_is_recomputed_bit_for_bit():
    equals_plain(lambda x, y: normalized(y).clone(), least=WHOLE)
    equals_plain(lambda x, y: normalized(y).t().clone(memory_format=torch.contiguous_format))


@case
def products_quotients_and_sums_in_place_are_recomputed_bit_for_bit():
    for function in (
        lambda x, y: normalized(y).mul_(normalized(x).sigmoid()),
        lambda x, y: normalized(y).div_(normalized(x).sigmoid()),
        lambda x, y: normalized(y).mul_(random(64, seed=5)),
        lambda x, y: normalized(y).mul_(0.3),
        lambda x, y: normalized(y).add_(normalized(x)),
        lambda x, y: normalized(y).sub_(normalized(x), alpha=0.3),
        lambda x, y: normalized(y).add_(0.3),
        lambda x, y: normalized(y).bfloat16().add_(normalized(x)).float(),
    ):
        equals_plain(function, least=WHOLE // 2)


@case
def operators_in_place_one_after_another_are_recomputed_bit_for_bit():
    equals_plain(lambda x, y: F.silu(F.hardswish(normalized(y), inplace=True), inplace=True), least=2 * WHOLE)
    equals_plain(lambda x, y: F.silu(normalized(y).add_(normalized(x)), inplace=True), least=2 * WHOLE)
    equals_plain(lambda x, y: F.silu(normalized(y).mul_(2), inplace=True).mul_(2))


@case
def operators_in_place_on_views_have_the_plain_bits():
    def flat(x, y):
        h = normalized(y)
        F.silu(h.view(-1), inplace=True)
        return h

    def of_a_view(x, y):
        return F.silu(normalized(y).view(16, 256), inplace=True).view(64, 64)

    def part(x, y):
        h = normalized(y)
        F.silu(h[:, 8:40], inplace=True)
        return h

    def part_twice(x, y):
        h = normalized(y)
        F.silu(h[:, :32], inplace=True)
        F.hardtanh(h[:, 32:], inplace=True)
        return F.silu(h, inplace=True)

    def transposed(x, y):
        return F.silu(normalized(y).t(), inplace=True)

    def base_of_a_view(x, y):
        h = normalized(y)
        flat = h.view(-1)
        F.silu(h, inplace=True)
        return flat.view(64, 64)

    for function in (flat, of_a_view, part, part_twice, transposed, base_of_a_view):
        equals_plain(function)


def unseen(change):
    def function(tensor):
        with torch.no_grad():
            change(tensor)
        return tensor

    return function


@case
def an_edit_that_no_graph_has_seen_is_not_lost():
    twice = unseen(lambda h: h.mul_(2))
    part = unseen(lambda h: h[:, :8].zero_())
    for edit in (twice, part):
        for activation in (*CLONED.values(), *SAVED.values(), torch.clone, lambda h: h.mul_(0.5)):
            for function in (
                lambda x, y, edit=edit, act=activation: act(edit(normalized(y))),  # before it
                lambda x, y, edit=edit, act=activation: edit(act(normalized(y)) * 1),  # after a copy
            ):
                equals_plain(function)
    for activation in (*CLONED.values(), torch.clone):  # these do not need their result
        equals_plain(lambda x, y, act=activation: twice(act(normalized(y))), most=WHOLE)


@case
def an_edit_of_an_operand_after_its_clone_is_not_lost():
    def function(x, y):
        h = normalized(y)
        copy = h.clone()
        with torch.no_grad():
            h.mul_(2)
        return copy * h

    equals_plain(function)


@case
def a_result_that_is_written_over_twice_has_the_bits_of_each_time():
    def function(x, y):
        h = normalized(y)
        first = F.silu(h, inplace=True)
        kept = first.clone()
        second = F.mish(h, inplace=True)
        return kept * second.clone()

    equals_plain(function)


@case
def a_result_in_place_that_is_edited_later_raises():
    for activation in (*CLONED.values(), *SAVED.values()):
        for region in (keeping, spillway.recompute):
            with an_edit_is_noticed():
                gradients(
                    lambda x, y, act=activation: act(normalized(y)),
                    region(),
                    edit=unseen(lambda y: y.mul_(2)),
                )


@case
def an_operand_that_is_edited_after_its_recipe_was_made_raises():
    """What is recomputed from it would have other bits: plain training would not notice."""

    def run(region):
        x, w = random(64, 64).requires_grad_(), random(64, 64, seed=1).requires_grad_()
        with region:
            h = x * 1
            loss = (F.silu(F.layer_norm(h, (64,)), inplace=True) @ w).sum()
        h.detach().add_(1)
        return torch.autograd.grad(loss, [w])

    with an_edit_is_noticed():
        run(spillway.recompute())


@case
def sums_of_two_types_are_recomputed_bit_for_bit():
    def half(x, y):
        return normalized(y).bfloat16()

    for function in (
        lambda x, y: half(x, y) + normalized(x),
        lambda x, y: normalized(x) + half(x, y),
        lambda x, y: torch.sub(half(x, y), normalized(x), alpha=0.3),
        lambda x, y: normalized(x) - half(x, y),
        lambda x, y: normalized(y).half() + normalized(x).bfloat16(),
        lambda x, y: half(x, y) + normalized(x[:1].double()),
    ):
        equals_plain(lambda x, y, f=function: f(x, y).float(), least=WHOLE)


@case
def sums_with_a_parameter_are_recomputed_bit_for_bit():
    weight = random(64, seed=7).requires_grad_()
    equals_plain(lambda x, y: normalized(y) + weight, least=WHOLE)
    equals_plain(lambda x, y: normalized(y).bfloat16().add_(weight).float(), least=WHOLE)


@case
def a_parameter_that_has_changed_before_its_sum_was_saved_is_not_used():
    def function(x, y):
        weight = (random(64, seed=7)).requires_grad_()
        h = normalized(y) + weight
        with torch.no_grad():
            weight.add_(1)
        return h

    equals_plain(function)


@case
def a_parameter_that_has_changed_between_the_passes_raises():
    weight = random(64, seed=7).requires_grad_()
    with an_edit_is_noticed():
        gradients(
            lambda x, y: normalized(y) + weight,
            spillway.recompute(),
            edit=lambda y: weight.detach().add_(1),
        )
