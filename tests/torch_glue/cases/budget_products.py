# SPDX-License-Identifier: Apache-2.0
"""Under a budget results of products of matrices may be recomputed, too: bit for bit."""

import contextlib

import spillway
import torch
from torch import nn
from torch.nn import functional as F

from cases import case, case_of
from cases.beside_plain import random
from cases.measure import SCRATCH, an_edit_is_noticed, last, same

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
    """Bytes of what the first layer gives, which its activation saves. The second one's is
    not recomputed: too much would be on the way to it."""
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


def products_are_recomputed_bit_for_bit(dtype, around, bias):
    expected = gradients(spillway.compat.NoOpManager(), dtype, around, bias=bias)
    # The first step lets everything go that it can.
    actual = gradients(spillway.offload(budget="1GiB", tag="first"), dtype, around, bias=bias)
    assert same(expected, actual)
    item = torch.empty(0, dtype=dtype).itemsize if around is contextlib.nullcontext else 2
    released, again = last("first")["left_to_recompute_bytes"], last("first")["recomputed_bytes"]
    cast = ROWS * WIDTH * 4 if around is autocast else 0  # the result, cast to be squared
    assert again >= released >= activations(item=item) + product(item=item) + cast, (released, again)
    spillway.step()


for name, dtype, around, bias in (
    ("single", torch.float32, contextlib.nullcontext, False),
    ("single_with_bias", torch.float32, contextlib.nullcontext, True),
    ("bfloat16", torch.bfloat16, contextlib.nullcontext, False),
    ("bfloat16_with_bias", torch.bfloat16, contextlib.nullcontext, True),
    ("double", torch.float64, contextlib.nullcontext, True),
    ("autocast", torch.float32, autocast, False),
    ("autocast_with_bias", torch.float32, autocast, True),
):
    case_of(
        f"products_in_{name}_are_recomputed_bit_for_bit",
        products_are_recomputed_bit_for_bit,
        dtype,
        around,
        bias,
    )


@case
def under_autocast_a_product_with_a_bias_is_released_as_one_without():
    released = []
    for bias in (False, True):
        gradients(spillway.offload(budget="1GiB", tag=f"bias-{bias}"), around=autocast, bias=bias)
        released.append(last(f"bias-{bias}")["left_to_recompute_bytes"])
        spillway.step()
    assert released[0] == released[1] >= activations(item=2) + product(item=2), released


@case
def without_a_budget_products_are_kept():
    gradients(spillway.recompute())
    assert 0 < last("recompute")["left_to_recompute_bytes"] <= activations(), last("recompute")
    gradients(spillway.offload(budget="1GiB", recompute=False, tag="moves"))
    assert last("moves")["left_to_recompute_bytes"] == 0
    spillway.step()


@case
def where_there_is_plenty_planned_steps_keep_them_with_the_same_bits():
    expected = gradients(spillway.compat.NoOpManager())
    region = spillway.offload(budget="1GiB", tag="plenty")
    for _ in range(4):
        actual = gradients(region)
        assert same(expected, actual)
    assert last("plenty")["left_to_recompute_bytes"] == 0, last("plenty")
    assert last("plenty")["offloaded_bytes"] == 0
    spillway.step()


def edited(tag, edit, around=contextlib.nullcontext):
    region = spillway.offload(budget="1GiB", tag=tag)  # a first step: everything is released
    try:
        with an_edit_is_noticed():
            gradients(region, around=around, edit=edit)
    finally:
        spillway.step()


@case
def a_weight_that_has_changed_between_the_passes_is_an_error():
    edited("weight", lambda net: net[0].weight.detach().mul_(2))


@case
def a_bias_that_has_changed_between_the_passes_is_an_error():
    """Without a budget nothing would need it again."""
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

    assert same(step(spillway.compat.NoOpManager()), step(spillway.offload(budget="1GiB", tag="odd")))
    spillway.step()


@case
def a_weight_that_autocast_has_cast_and_that_has_changed_is_an_error():
    edited("cast-weight", lambda net: net[0].weight.detach().mul_(2), around=autocast)


@case
def a_bias_that_autocast_has_cast_may_change_between_the_passes():
    """The cast is kept in its place."""

    def edit(net):
        with torch.no_grad():
            net[0].bias.add_(1)

    expected = gradients(spillway.compat.NoOpManager(), around=autocast, edit=edit)
    actual = gradients(spillway.offload(budget="1GiB", tag="cast-bias"), around=autocast, edit=edit)
    assert same(expected, actual)
    released = last("cast-bias")["left_to_recompute_bytes"]
    assert released >= activations(item=2) + product(item=2) + ROWS * WIDTH * 4, released
    spillway.step()


ROWS_OF_ADAPTED = 512  # so that even what is narrow is not too small to be looked at


class Adapted(nn.Module):
    """A frozen layer behind a norm, whose result nothing needs, with an adapter or without."""

    def __init__(self, bias, rank):
        super().__init__()
        self.norm, self.frozen = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 2 * WIDTH, bias=bias)
        self.frozen.requires_grad_(False)
        self.narrow = nn.Linear(WIDTH, rank, bias=False) if rank else None
        self.wide = nn.Linear(rank, 2 * WIDTH, bias=False) if rank else None
        self.out = nn.Linear(2 * WIDTH, WIDTH)
        self.norm.requires_grad_(False)

    def forward(self, x, edits):
        h = self.norm(x)
        if edits:
            with torch.no_grad():
                h.mul_(2)  # no graph has seen it
        y = self.frozen(h)
        if self.narrow is not None:
            y = y + self.wide(self.narrow(h))
        return self.out(F.silu(y))


def adapted(region, dtype, around, bias, rank, edits=False):
    torch.manual_seed(4)
    net = Adapted(bias, rank).to("cuda", dtype)
    x = random(2, ROWS_OF_ADAPTED // 2, WIDTH).to(dtype).requires_grad_()
    with region, around():
        loss = net(x, edits).square().sum()
    loss.backward()
    trained = [each for each in net.parameters() if each.requires_grad]
    return [loss.detach(), x.grad, *(each.grad for each in trained)]


def products_with_what_is_frozen_are_recomputed_bit_for_bit(dtype, around, bias, rank):
    expected = adapted(spillway.compat.NoOpManager(), dtype, around, bias, rank)
    actual = adapted(spillway.offload(budget="1GiB", tag="frozen"), dtype, around, bias, rank)
    assert same(expected, actual)
    item = torch.empty(0, dtype=dtype).itemsize if around is contextlib.nullcontext else 2
    released, again = last("frozen")["left_to_recompute_bytes"], last("frozen")["recomputed_bytes"]
    saved = ROWS_OF_ADAPTED * WIDTH * item if rank else 0  # what the norm gives, by the adapter
    if around is autocast:
        saved = ROWS_OF_ADAPTED * WIDTH * 4  # the result, cast to be squared
    assert again >= released >= saved + 2 * product(ROWS_OF_ADAPTED, item=item), (released, again)
    spillway.step()


for name, dtype, around, bias, rank in (
    ("single", torch.float32, contextlib.nullcontext, False, 0),
    ("single_with_bias", torch.float32, contextlib.nullcontext, True, 0),
    ("bfloat16_with_bias", torch.bfloat16, contextlib.nullcontext, True, 0),
    ("autocast", torch.float32, autocast, False, 0),
    ("autocast_with_bias", torch.float32, autocast, True, 0),
    ("single_with_an_adapter", torch.float32, contextlib.nullcontext, False, 8),
    ("bfloat16_with_an_adapter", torch.bfloat16, contextlib.nullcontext, False, 8),
):
    case_of(
        f"products_with_what_is_frozen_in_{name}_are_recomputed_bit_for_bit",
        products_with_what_is_frozen_are_recomputed_bit_for_bit,
        dtype,
        around,
        bias,
        rank,
    )


@case
def what_is_multiplied_after_an_edit_that_no_graph_has_seen_is_not_recomputed():
    for bias in (False, True):
        how = (torch.float32, contextlib.nullcontext, bias, 0, True)
        expected = adapted(spillway.compat.NoOpManager(), *how)
        actual = adapted(spillway.offload(budget="1GiB", tag="unseen"), *how)
        assert same(expected, actual)
        assert last("unseen")["left_to_recompute_bytes"] < 2 * product(ROWS_OF_ADAPTED), last("unseen")
        spillway.step()


@case
def a_frozen_bias_that_has_changed_between_the_passes_is_an_error():
    torch.manual_seed(4)
    net = Adapted(True, 0).cuda()
    x = random(ROWS, WIDTH).requires_grad_()
    with spillway.offload(budget="1GiB", tag="frozen-bias"):
        loss = net(x, False).square().sum()
    net.frozen.bias.add_(1)
    try:
        with an_edit_is_noticed():
            loss.backward()
    finally:
        spillway.step()


def trained(region, tag=None, steps=20):
    """Losses and adapters after this many steps with an optimizer, the peak of the last one, and the most
    that one has recomputed."""
    torch.manual_seed(5)
    nets = [Adapted(True, 8).to("cuda", torch.bfloat16) for _ in range(4)]
    x = random(ROWS_OF_ADAPTED, WIDTH).bfloat16().requires_grad_()
    weights = [each for net in nets for each in net.parameters() if each.requires_grad]
    optimizer = torch.optim.SGD(weights, lr=0.1)
    losses, again = [], 0
    for _ in range(steps):
        torch.cuda.reset_peak_memory_stats()
        with region:
            y = x
            for net in nets:
                y = y + net(y, False)
            loss = y.square().mean()
        loss.backward()
        losses.append(loss.detach())
        del loss, y
        again = max(again, last(tag)["recomputed_bytes"]) if tag else 0
        optimizer.step()
        optimizer.zero_grad()
    return [*losses, *(each.detach() for each in weights)], torch.cuda.max_memory_allocated(), again


@case
def adapters_train_under_a_tight_budget_with_the_same_bits():
    expected, peak, _ = trained(spillway.compat.NoOpManager())
    kept = 4 * 2 * product(ROWS_OF_ADAPTED, item=2)  # of what frozen layers and activations give
    budget = peak - kept // 2 + SCRATCH
    # So little is left beside workspaces that pages alone exceed it.
    region = spillway.offload(budget=budget, tag="adapters", over_budget="warn")
    actual, under, again = trained(region, "adapters")
    assert same(expected, actual)
    assert under <= budget, (under, peak, kept)
    assert again >= kept, (again, kept)  # the first step releases all that it can
    spillway.step()


@case
def a_bias_that_has_changed_before_the_product_was_saved_is_not_used():
    """No node keeps a bias, so that PyTorch itself accepts it."""

    def step(region, around, trained):
        torch.manual_seed(3)
        layer = nn.Linear(WIDTH, 2 * WIDTH).cuda()
        layer.bias.requires_grad_(trained)
        x = random(ROWS, WIDTH).requires_grad_()
        with region, around():
            y = layer(x)
            with torch.no_grad():
                layer.bias.add_(1)
            loss = F.silu(y).square().sum()
        del y  # nothing else has it
        loss.backward()
        return [loss.detach(), x.grad, *(each.grad for each in layer.parameters() if each.grad is not None)]

    for around in (contextlib.nullcontext, autocast):
        for trained in (True, False):
            expected = step(spillway.compat.NoOpManager(), around, trained)
            assert same(expected, step(spillway.offload(budget="1GiB", tag="early"), around, trained))
            spillway.step()


def gather_for_each_pass(block):
    """As FSDP does: the memory of its parameters exists only while one of its passes runs."""
    whole = [each.detach().clone() for each in block.parameters()]

    def gather(*_):
        for each, values in zip(block.parameters(), whole, strict=True):
            each.untyped_storage().resize_(values.nbytes)
            with torch.no_grad(), torch.autograd._unsafe_preserve_version_counter(each):
                each.copy_(values)

    def free(_module, _inputs, output):
        for each in block.parameters():
            each.untyped_storage().resize_(0)
        output.register_hook(gather)

    block.register_forward_pre_hook(gather)
    block.register_forward_hook(free)


@case
def what_freed_parameters_would_be_needed_for_is_kept():
    def run(region):
        torch.manual_seed(3)
        blocks = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.SiLU(), nn.LayerNorm(WIDTH)) for _ in range(3)]
        net = nn.Sequential(*blocks).cuda()
        for block in net:
            gather_for_each_pass(block)
        with region:
            loss = net(random(ROWS, WIDTH)).square().sum()
        loss.backward()
        return [loss.detach(), *(each.grad for each in net.parameters())]

    expected = run(spillway.compat.NoOpManager())
    assert same(expected, run(spillway.offload(budget="1GiB", tag="freed")))
    assert last("freed")["left_to_recompute_bytes"] > 0  # within a block
    spillway.step()
    assert same(expected, run(spillway.recompute()))
