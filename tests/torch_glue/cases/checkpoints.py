# SPDX-License-Identifier: Apache-2.0
"""Checkpointed functions and modules: what is forgotten is fetched, bit for bit."""

import threading

import spillway
import torch
from torch import nn

from cases import case, of_threads
from cases.measure import Copied, gradients_of_gradients, residency, same

WIDTH = 64


def batch(seed=3, rows=16):
    torch.manual_seed(seed)
    return torch.randn(rows, WIDTH, device="cuda")


class Block(nn.Module):
    """Counts its runs; draws random numbers."""

    def __init__(self, dropout=0.3):
        super().__init__()
        self.a, self.b = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.dropout = nn.Dropout(dropout)
        self.runs = 0

    def forward(self, x, scale=1.0):
        self.runs += 1
        return self.b(self.dropout(self.a(x).tanh())) * scale


def blocks(count=3, **options):
    torch.manual_seed(1)
    return nn.Sequential(*(Block(**options) for _ in range(count))).cuda()


def gradients(net, x, seed=9, **context):
    """Gradients of the parameters and of `x` after one step."""
    net.zero_grad()
    x = x.clone().requires_grad_()
    torch.manual_seed(seed)
    net(x).square().sum().backward()
    return [p.grad.clone() for p in net.parameters()] + [x.grad]


def wrapped(net, **options):
    for block in net:
        spillway.checkpoint_wrapper(block, **options)
    return net


@case
def a_wrapped_module_has_the_gradients_of_the_plain_one():
    for offload in (False, True):
        net = wrapped(blocks(), offload_to_cpu=offload)
        with Copied() as copied:
            assert same(gradients(net, batch()), gradients(blocks(), batch())), offload
        assert [block.runs for block in net] == [2, 2, 2]
        # The first input is a leaf that wants its gradient, which something holds for sure.
        assert copied.out == (2 * 16 * WIDTH * 4 if offload else 0), copied.out


@case
def inputs_are_fetched_ahead_of_the_second_run():
    fetches = []

    def block(x):
        if spillway.compat.is_recomputing():
            fetches.append(residency()["fetches"])
        return x.sigmoid()

    before = residency()["fetches"]
    y = batch().requires_grad_() * 1
    for _ in range(4):
        y = spillway.checkpoint(block, y, offload_to_cpu=True)
    torch.cuda.synchronize()
    spillway.step()
    y.sum().backward()
    # While a block runs again, the input of the one before it is on its way.
    assert [n - before for n in fetches] == [2, 3, 4, 4], fetches


@case
def arguments_of_any_shape_reach_the_function_again():
    def function(first, pair, *, named, nothing=None, text="x"):
        assert nothing is None and text == "y"
        return {"sum": first + pair["left"][0] * 2, "product": (named * pair["left"][1],), "text": text}

    def run(call):
        leaves = [batch(seed).requires_grad_() for seed in range(4)]
        a, b, c, d = (leaf * 1 for leaf in leaves)
        out = call(function, a, {"left": [b, c]}, named=d, text="y")
        assert out["text"] == "y" and isinstance(out["product"], tuple)
        (out["sum"] * out["product"][0]).square().sum().backward()
        return [leaf.grad for leaf in leaves]

    plain = run(lambda function, *args, **kwargs: function(*args, **kwargs))
    assert same(run(spillway.checkpoint), plain)
    with Copied() as copied:
        assert same(run(lambda *a, **k: spillway.checkpoint(*a, offload_to_cpu=True, **k)), plain)
    assert copied.out > 0


@case
def results_that_are_no_tensors_are_passed_on():
    for result in (None, 3, "text", [1, None]):
        assert spillway.checkpoint(lambda x, value=result: value, batch()) is result


@case
def any_false_value_leaves_the_arguments_on_the_device():
    for value in (False, None, 0, {}, (), ""):
        net = wrapped(blocks(1), offload_to_cpu=value)
        with Copied() as copied:
            assert same(gradients(net, batch()), gradients(blocks(1), batch())), value
        assert copied.out == 0, value
    for value in ("yes", 1, {"offload": True}):
        try:
            spillway.checkpoint_wrapper(nn.Linear(2, 2), value)
            raise AssertionError(f"{value} was to be refused")
        except TypeError as error:
            assert "offload_to_cpu must be True or False" in str(error), error


@case
def a_module_trains_whose_inputs_need_no_gradient():
    net = spillway.checkpoint_wrapper(blocks(1)[0], offload_to_cpu=True)
    plain = blocks(1)[0]
    with Copied() as copied:
        for one in (net, plain):
            torch.manual_seed(9)
            one(batch()).sum().backward()
    assert copied.out > 0
    assert same([p.grad for p in net.parameters()], [p.grad for p in plain.parameters()])


@case
def gradients_flow_through_a_frozen_module():
    def run(wrap):
        net = blocks()
        if wrap:
            wrapped(net, offload_to_cpu=True)
        for parameter in net[1].parameters():
            parameter.requires_grad_(False)
        x = batch().requires_grad_()
        torch.manual_seed(9)
        with Copied() as copied:
            net(x).sum().backward()
        assert net[1].a.weight.grad is None
        assert [block.runs for block in net] == [1 + wrap] * 3 and (copied.out > 0) == wrap
        return [x.grad, *(p.grad for p in net[0].parameters())]

    assert same(run(True), run(False))


@case
def nothing_is_run_again_that_needs_no_gradient():
    net = wrapped(blocks())
    for parameter in net.parameters():
        parameter.requires_grad_(False)
    y = net(batch())
    assert not y.requires_grad and [block.runs for block in net] == [1, 1, 1]
    with torch.no_grad():
        assert not net(batch()).requires_grad
    assert [block.runs for block in net] == [2, 2, 2]


@case
def checkpointing_can_be_switched_off():
    net = wrapped(blocks(), offload_to_cpu=True)
    with Copied() as copied, spillway.compat.disable_checkpointing():
        found = gradients(net, batch())
    assert same(found, gradients(blocks(), batch()))
    assert [block.runs for block in net] == [1, 1, 1] and copied.out == 0


@case
def switches_that_end_in_another_order_leave_checkpointing_on():
    first, second = spillway.compat.disable_checkpointing(), spillway.compat.disable_checkpointing()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    second.__exit__(None, None, None)
    net = wrapped(blocks())
    assert same(gradients(net, batch()), gradients(blocks(), batch()))
    assert [block.runs for block in net] == [2, 2, 2]


@case
def functions_know_whether_they_run_for_the_first_time():
    seen = []

    def function(x):
        seen.append((spillway.compat.is_checkpointing(), spillway.compat.is_recomputing()))
        return x.sigmoid()

    spillway.checkpoint(function, batch().requires_grad_()).sum().backward()
    assert seen == [(True, False), (False, True)]
    assert not spillway.compat.is_checkpointing() and not spillway.compat.is_recomputing()


@case
def nested_checkpoints_have_the_plain_gradients():
    net = blocks()

    def inner(x):
        return net[1](net[0](x))

    def outer(x):
        return net[2](spillway.checkpoint(inner, x).tanh())

    def run(checkpoint):
        net.zero_grad()
        torch.manual_seed(9)
        x = batch().requires_grad_()
        y = checkpoint(outer, x * 1) if checkpoint else net[2](inner(x * 1).tanh())
        y.sum().backward()
        return [x.grad, *(p.grad.clone() for p in net.parameters())]

    assert same(run(spillway.checkpoint), run(None))
    with Copied() as copied:
        assert same(run(lambda f, x: spillway.checkpoint(f, x, offload_to_cpu=True)), run(None))
    assert copied.out > 0


@case
def checkpoints_and_regions_nest_either_way():
    net = blocks()
    plain = gradients(net, batch())

    def outside(x):
        with spillway.CPUOffload(1, tag="outside"):
            return spillway.checkpoint(net, x * 1)

    def inside(x):
        def function(x):
            with spillway.CPUOffload(1, tag="inside"):
                return net(x * 1)

        return spillway.checkpoint(function, x)

    def torchs(x):
        return spillway.checkpoint(
            lambda x: torch.utils.checkpoint.checkpoint(net, x, use_reentrant=False), x * 1
        )

    def in_torchs(x):
        return torch.utils.checkpoint.checkpoint(
            lambda x: spillway.checkpoint(net, x * 1, offload_to_cpu=True), x, use_reentrant=False
        )

    for function in (outside, inside, torchs, in_torchs):
        net.zero_grad()
        x = batch().requires_grad_()
        torch.manual_seed(9)
        with Copied() as copied:
            function(x).square().sum().backward()
        assert same([p.grad for p in net.parameters()] + [x.grad], plain), function
        assert (copied.out > 0) == (function is not torchs), function


@case
def regions_inside_move_nothing_in_the_second_run():
    def function(x):
        with spillway.CPUOffload(1, tag="inner"):
            y = (x * 1).sigmoid()
        return (y * 1).tanh()

    with Copied() as copied:
        spillway.checkpoint(function, batch().requires_grad_()).sum().backward()
    assert copied.out == 16 * WIDTH * 4


@case
def gradients_of_gradients_are_the_plain_ones():
    net, plain = wrapped(blocks(dropout=0.0), offload_to_cpu=True), blocks(dropout=0.0)
    with Copied() as copied:
        found = gradients_of_gradients(net, batch().requires_grad_())
    assert copied.out > 0 and same(found, gradients_of_gradients(plain, batch().requires_grad_()))


@case
def a_forward_of_the_objects_own_is_checkpointed_too():
    net = blocks(1)[0]
    inner, runs = net.forward, []
    net.forward = lambda x: runs.append(1) or inner(x) * 2
    spillway.checkpoint_wrapper(net)
    net(batch().requires_grad_()).sum().backward()
    assert len(runs) == 2


@case
@of_threads
def threads_run_their_checkpoints_at_the_same_time():
    expected = {seed: gradients(blocks(dropout=0.0), batch(seed)) for seed in range(4)}
    found = {}

    def train(seed):
        # As in regions: threads that share free memory hand it over unseen by the order checker.
        with torch.cuda.stream(torch.cuda.Stream()):
            found[seed] = gradients(nets[seed], inputs[seed])

    nets = {seed: wrapped(blocks(dropout=0.0), offload_to_cpu=True) for seed in range(4)}
    inputs = {seed: batch(seed) for seed in range(4)}
    threads = [threading.Thread(target=train, args=(seed,)) for seed in range(4)]
    torch.cuda.synchronize()
    with Copied() as copied:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    torch.cuda.synchronize()
    assert all(same(found[seed], expected[seed]) for seed in range(4)) and copied.out > 0
