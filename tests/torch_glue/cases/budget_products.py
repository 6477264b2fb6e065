# SPDX-License-Identifier: Apache-2.0
"""Under a budget results of products of matrices may be computed again, too: bit for bit."""

import contextlib
import functools

import spillway
import torch
from torch import nn
from torch.nn import functional as F

from cases import case
from cases.beside_plain import random
from cases.measure import last, same

WIDTH = 128
ROWS = 64


def model(dtype=torch.float32, bias=True):
    torch.manual_seed(3)
    layers = [nn.Linear(WIDTH, 2 * WIDTH, bias=bias), nn.SiLU(), nn.Linear(2 * WIDTH, WIDTH), nn.GELU()]
    return nn.Sequential(*layers, nn.Linear(WIDTH, WIDTH)).to("cuda", dtype)


def activations(rows=ROWS, width=WIDTH, item=4):
    """Bytes of what the activations give, which the layers behind them save."""
    return rows * 3 * width * item


def product(rows=ROWS, width=WIDTH, item=4):
    """Bytes of what the first layer gives, which its activation saves. The second one's is not computed
    again: too much would be on the way to it."""
    return rows * 2 * width * item


def gradients(region, dtype=torch.float32, around=contextlib.nullcontext, edit=None, bias=True):
    net = model(dtype, bias)
    x = random(2, ROWS // 2, WIDTH).to(dtype).requires_grad_()
    with region, around():
        loss = net(x).square().sum()
    if edit is not None:
        edit(net)
    loss.backward()
    return [loss.detach(), x.grad, *(each.grad for each in net.parameters())]


def autocast():
    return torch.autocast("cuda", torch.bfloat16)


def products_are_computed_again_bit_for_bit(dtype, around, bias):
    expected = gradients(spillway.NoOpManager(), dtype, around, bias=bias)
    # The first step lets everything go that it can.
    actual = gradients(spillway.offload(budget="1GiB", tag="first"), dtype, around, bias=bias)
    assert same(expected, actual)
    item = torch.empty(0, dtype=dtype).itemsize if around is contextlib.nullcontext else 2
    let_go, again = last("first")["left_to_rebuild_bytes"], last("first")["rebuilt_bytes"]
    assert again >= let_go >= activations(item=item) + product(item=item), (let_go, again)
    spillway.step()


for name, dtype, around, bias in (
    ("single", torch.float32, contextlib.nullcontext, False),
    ("single_with_bias", torch.float32, contextlib.nullcontext, True),
    ("bfloat16", torch.bfloat16, contextlib.nullcontext, False),
    ("bfloat16_with_bias", torch.bfloat16, contextlib.nullcontext, True),
    ("double", torch.float64, contextlib.nullcontext, True),
    ("autocast", torch.float32, autocast, False),
):
    claim = functools.partial(products_are_computed_again_bit_for_bit, dtype, around, bias)
    claim.__name__ = f"products_in_{name}_are_computed_again_bit_for_bit"
    case(claim)


@case
def without_a_budget_products_are_kept():
    gradients(spillway.rebuild())
    assert 0 < last("rebuild")["left_to_rebuild_bytes"] <= activations(), last("rebuild")
    gradients(spillway.offload(budget="1GiB", rebuild=False, tag="moves"))
    assert last("moves")["left_to_rebuild_bytes"] == 0
    spillway.step()


@case
def where_there_is_plenty_planned_steps_keep_them_with_the_same_bits():
    expected = gradients(spillway.NoOpManager())
    region = spillway.offload(budget="1GiB", tag="plenty")
    for _ in range(4):
        actual = gradients(region)
        assert same(expected, actual)
    assert last("plenty")["left_to_rebuild_bytes"] == 0, last("plenty")
    assert last("plenty")["moved_bytes"] == 0
    spillway.step()


def edited(tag, edit):
    region = spillway.offload(budget="1GiB", tag=tag)  # a first step: everything is let go
    try:
        gradients(region, edit=edit)
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error), error
        return
    finally:
        spillway.step()
    raise AssertionError("a changed parameter went unseen")


@case
def a_weight_that_has_changed_between_the_passes_is_an_error():
    edited("weight", lambda net: net[0].weight.detach().mul_(2))


@case
def a_bias_that_has_changed_between_the_passes_is_an_error():
    """Without a budget nobody would need it again."""
    edited("bias", lambda net: net[0].bias.detach().add_(1))


@case
def what_other_functions_made_of_a_product_is_left_alone():
    weight = random(WIDTH, WIDTH, seed=5).requires_grad_()
    x = random(ROWS, WIDTH).requires_grad_()

    def step(region):
        weight.grad = x.grad = None
        with region:
            y = torch.mm(x, weight)
            with torch.no_grad():
                y.mul_(2)  # no graph has seen it
            loss = F.silu(y).sum()
        loss.backward()
        return [loss.detach(), x.grad.clone(), weight.grad.clone()]

    assert same(step(spillway.NoOpManager()), step(spillway.offload(budget="1GiB", tag="odd")))
    spillway.step()
