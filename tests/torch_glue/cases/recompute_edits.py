# SPDX-License-Identifier: Apache-2.0
"""What was edited is never computed from: it is kept, or its backward pass raises."""

import spillway
import torch
from torch import nn
from torch.nn import functional as F

from cases import case
from cases.beside_plain import keeping, left, random
from cases.measure import an_edit_is_noticed, plenty, same


def edited(function):
    """Gradients of a function that edits what no node has saved, plain and in a region that recomputes."""

    def run(region):
        x, w = random(64, 64).requires_grad_(), random(64, 64, seed=1).requires_grad_()
        with region:
            loss = (function(x, x @ w).float() @ w).sum()
        return torch.autograd.grad(loss, [x, w])

    expected = run(keeping())
    with spillway.CPUOffload(1.0, tag="edited"):
        assert same(expected, run(spillway.recompute()))
    torch.cuda.synchronize()  # over PyTorch's allocator the next save releases what was copied
    assert same(expected, run(spillway.recompute()))


@case
def a_result_that_is_edited_later_raises():
    x, w = random(64, 64).requires_grad_(), random(64, 64, seed=1).requires_grad_()
    with spillway.recompute():
        y = F.silu(x)
        loss = (y @ w).sum()
    y.detach().add_(1)
    with an_edit_is_noticed():
        loss.backward()


@case
def what_is_computed_from_an_edited_input_raises():
    w = random(64, 64, seed=1).requires_grad_()
    x = random(64, 64).requires_grad_()
    with spillway.recompute():
        h = x * 1
        loss = (F.silu(h) @ w).sum()
    h.detach().add_(1)
    with an_edit_is_noticed():
        torch.autograd.grad(loss, [w])


@case
def a_result_that_was_edited_before_it_was_saved_is_kept():
    def run(region):
        x, w = random(64, 64).requires_grad_(), random(64, 64, seed=1).requires_grad_()
        with region:
            y = F.silu(x)
            with torch.no_grad():
                y.clamp_(max=0.5)
            loss = (y @ w).sum()
            del y
        loss.backward()
        return [x.grad, w.grad]

    assert same(run(keeping()), run(spillway.recompute()))
    assert left() == (0, 0)


@case
def a_result_that_was_edited_between_two_saves_is_kept_for_the_second():
    def run(region):
        x = random(64, 64).requires_grad_()
        w = random(64, 64, seed=1).requires_grad_()
        with region:
            y = F.layer_norm(x, (64,)).relu_()
            with torch.no_grad():
                y.mul_(2)
            loss = (y @ w).sum()
            del y
        return torch.autograd.grad(loss, [w])

    assert same(run(keeping()), run(spillway.recompute()))


@case
def what_was_saved_outside_the_region_counts_as_it_was_then():
    def run(region):
        h = random(64, 64).requires_grad_() * 1
        w = random(64, 64, seed=1).requires_grad_()
        y = F.silu(h)
        with torch.no_grad():
            h.add_(1)
        with region:
            loss = (y @ w).sum()
            del y
        return torch.autograd.grad(loss, [w])

    assert same(run(keeping()), run(spillway.recompute()))


@case
def a_result_whose_node_was_released_and_that_changed_since_is_kept():
    def run(region):
        x, w = random(64, 64).requires_grad_(), random(64, 64, seed=1).requires_grad_()
        with region:
            h = F.layer_norm(x, (64,))
            y = F.relu(h)
            (grad,) = torch.autograd.grad(y.sum(), [h])  # releases what relu saved, and nothing else
            with torch.no_grad():
                y.mul_(2)
            loss = (y @ w).sum()
            del y
        return [grad, *torch.autograd.grad(loss, [w])]

    assert same(run(keeping()), run(spillway.recompute()))


@case
def a_step_of_the_optimizer_between_the_passes_raises_where_a_weight_is_needed():
    norm, out = nn.LayerNorm(64).cuda(), nn.Linear(64, 64).cuda()
    with spillway.recompute():
        loss = out(norm(random(8, 64))).sum()
    with torch.no_grad():
        norm.weight.add_(1)
    with an_edit_is_noticed():
        torch.autograd.grad(loss, [out.weight])


def raised_by_a_change(change, dtype=None):
    """The error of the backward pass for a changed weight, with and without autocast."""
    norm, out = nn.LayerNorm(64).cuda(), nn.Linear(64, 64).cuda()
    weights = [norm.weight, *out.parameters()]
    for weight in weights:
        weight.grad = torch.ones_like(weight)
    x = random(8, 64).requires_grad_()
    with spillway.recompute(), torch.autocast("cuda", dtype or torch.bfloat16, enabled=dtype is not None):
        loss = out(norm(x)).float().sum()
    change(weights)
    try:
        torch.autograd.grad(loss, [x if dtype else out.weight])
    except RuntimeError as error:
        return str(error)
    return "nothing"


@case
def a_step_of_a_fused_optimizer_is_noticed():
    for fused in (True, False):
        said = raised_by_a_change(lambda weights, fused=fused: torch.optim.AdamW(weights, fused=fused).step())
        assert "modified by an inplace operation" in said, (fused, said)
        assert "computes it again (NativeLayerNormBackward0)" in said, (fused, said)


@case
def a_parameter_that_has_changed_is_called_by_its_name():
    for region in (spillway.recompute, lambda: spillway.offload(budget=plenty(), tag="named")):
        net = nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 64)).cuda()
        x = random(8, 64)
        weight = torch.ones(64, device="cuda", requires_grad=True)  # of no module
        for changed, name in ((net[0].weight, "the tensor is 0.weight"), (weight, "")):
            with region():
                loss = net[1](net[0](x) * weight).sum()
            with torch.no_grad():
                changed.add_(1)
            try:
                torch.autograd.grad(loss, [net[1].weight, *net[0].parameters(), weight])
            except RuntimeError as error:
                assert "a tensor of shape [64] is at version" in str(error), error
                assert ("the tensor is" in str(error)) == bool(name) and name in str(error), error
            else:
                raise AssertionError("nothing was noticed")


@case
def a_change_of_what_autocast_has_cast_is_noticed():
    def change(weights):
        with torch.no_grad():
            weights[1].add_(1)

    assert "modified by an inplace operation" in raised_by_a_change(change, torch.bfloat16)
    assert raised_by_a_change(lambda weights: None, torch.bfloat16) == "nothing"


@case
def a_tensor_that_was_edited_between_its_cast_and_the_save_is_not_cast_again():
    def run(region):
        x = random(64, 64).requires_grad_()
        w = (random(64, 64, seed=1) * 1).bfloat16().requires_grad_()
        with region:
            small = x.bfloat16()
            exact = small.float()
            with torch.no_grad():
                small.add_(1)  # no node keeps it
            loss = (exact.pow(2).bfloat16() @ w).sum()
        return torch.autograd.grad(loss, [x, w])

    assert same(run(keeping()), run(spillway.recompute()))


@case
def an_edit_between_two_operators_is_not_lost():
    def before_relu(x, y):
        h = F.layer_norm(y, (64,))
        with torch.no_grad():
            h.mul_(2)
        return h.relu_()

    def before_a_sum(x, y):
        h = F.layer_norm(y, (64,))
        with torch.no_grad():
            h[:, :8] = 0
        return (h + F.layer_norm(x, (64,))).relu()

    def after_a_sum(x, y):
        h = F.layer_norm(y, (64,)) + F.layer_norm(x, (64,))
        h.detach().mul_(2)
        return h.relu()

    def before_it_is_negated(x, y):
        h = F.silu(y)
        with torch.no_grad():
            h.clamp_(max=0.5)
        return -h

    for function in (before_relu, before_a_sum, after_a_sum, before_it_is_negated):
        edited(function)


@case
def an_edit_before_an_operator_that_keeps_nothing_of_its_input_is_not_lost():
    def of(operator):
        def function(x, y):
            h = F.silu(y)
            with torch.no_grad():
                h.mul_(2)
            torch.manual_seed(5)
            return operator(h)

        return function

    for operator in (
        torch.tanh,
        torch.sigmoid,
        lambda h: h.softmax(-1),
        lambda h: h + 1,
        lambda h: h - 0.3,
        lambda h: 1 - h,
        lambda h: F.dropout(h, 0.3),
    ):
        edited(of(operator))


@case
def what_another_owner_saved_after_an_edit_is_not_taken():
    def scaled_before_the_edit(x, y):
        half = 0.5 * y
        with torch.no_grad():
            y.add_(1)
        return half * y.pow(2)

    def scaled_after_the_edit(x, y):
        with torch.no_grad():
            y.add_(1)
        square = y.pow(2)
        return (0.5 * y) * square

    for function in (scaled_before_the_edit, scaled_after_the_edit):
        edited(function)


@case
def sums_of_two_types_are_as_they_were():
    def in_place(x, y):
        h = F.layer_norm(y.bfloat16(), (64,))
        h += F.layer_norm(x, (64,))
        return h.relu_()

    def in_the_wider_type(x, y):
        return (F.layer_norm(y.bfloat16(), (64,)) + F.layer_norm(x, (64,))).relu()

    for function in (in_place, in_the_wider_type):
        edited(function)


@case
def what_a_node_saved_and_was_edited_before_the_recipe_is_not_used():
    def run(region):
        norm, w = nn.LayerNorm(64).cuda(), random(64, 64, seed=1).requires_grad_()
        with region:
            y = norm(random(8, 64))
            with torch.no_grad():
                norm.weight.mul_(2)
            loss = (y @ w).sum()
            del y
        return torch.autograd.grad(loss, [w])

    assert same(run(keeping()), run(spillway.recompute()))


@case
def what_is_scaled_after_an_edit_that_no_graph_has_seen_is_kept():
    def scaled(x, y):
        h = F.silu(y)
        with torch.no_grad():
            h.mul_(2)
        return h * 0.5

    edited(scaled)


@case
def what_is_scaled_after_an_edit_of_a_view_is_kept():
    def scaled(x, y):
        h = F.silu(y)
        flat = h.view(-1)
        with torch.no_grad():
            flat.mul_(2)
        return (h.view(-1) * 0.5).view(64, 64)

    edited(scaled)


@case
def what_is_scaled_after_an_addition_that_no_graph_has_seen_is_kept():
    def scaled(x, y):
        h = F.silu(y)
        with torch.no_grad():
            h.add_(x)
        return h * 0.5

    edited(scaled)


@case
def a_parameters_view_may_be_added_to_without_a_graph():
    p = random(64, 64).requires_grad_()
    expected = p.detach() + 1
    with spillway.recompute(), torch.no_grad():
        p.view(-1).add_(torch.ones(64 * 64, device="cuda"))
    assert same([expected], [p.detach()])
