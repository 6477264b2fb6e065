# SPDX-License-Identifier: Apache-2.0
"""The order in which the gradients of a weight with several uses are added: sums depend on it."""

import threading

import spillway
import torch
from torch import nn

from cases import case
from cases.measure import same
from cases.parts import WIDTH, batch

RUNS = 12  # what depends on who is first does not go wrong each time


def two_layers():
    torch.manual_seed(4)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh())


def gradients(net, run):
    net.zero_grad()
    run(net).backward()
    return [p.grad.clone() for p in net.parameters()]


def expect_the_plain_gradients(make, run, plain_run=None, **options):
    """In each of many backward passes."""
    expected = gradients(make().cuda(), plain_run or run)
    for checkpoint in (False, True):
        net = spillway.OffloadModel(make(), "cuda", checkpoint_activation=checkpoint, **options)
        for number in range(RUNS):
            assert same(gradients(net, run), expected), (options, checkpoint, number)


def several_passes(count):
    def run(net):
        x, loss = batch(), 0
        for _ in range(count):
            x = net(x)
            loss = loss + x.square().mean()
        return loss

    return run


@case
def several_passes_before_one_backward_pass_have_the_plain_gradients():
    for count in (3, 5):
        expect_the_plain_gradients(two_layers, several_passes(count), num_slices=2)


@case
def a_weight_that_several_layers_share_has_the_plain_gradient():
    def make(uses):
        torch.manual_seed(5)
        shared = nn.Linear(WIDTH, WIDTH)
        return nn.Sequential(
            *(layer for _ in range(uses) for layer in (shared, nn.Tanh())), nn.Linear(WIDTH, 5)
        )

    for uses, slices in ((3, 1), (3, 2), (3, 3), (3, 6), (5, 2), (5, 3), (5, 4), (5, 11)):
        expect_the_plain_gradients(
            lambda uses=uses: make(uses), lambda net: net(batch()).square().mean(), num_slices=slices
        )


@case
def uses_in_one_part_and_in_others_are_added_as_they_come():
    class Twice(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            return self.inner(self.inner(x).tanh()).tanh()

    def make():
        torch.manual_seed(6)
        shared = nn.Linear(WIDTH, WIDTH)
        return nn.Sequential(Twice(shared), Twice(shared), Twice(shared))

    expect_the_plain_gradients(make, lambda net: net(batch()).square().mean(), num_slices=3)
    expect_the_plain_gradients(make, several_passes(3), num_slices=2)


@case
def micro_batches_of_several_passes_are_added_as_they_come():
    pieces = 3

    def plain_run(net):
        xs, loss = list(batch().chunk(pieces)), 0
        for _ in range(3):
            for layer in net:
                xs = [layer(x) for x in xs]
            loss = loss + torch.cat(xs).square().mean()
            xs = list(torch.cat(xs).chunk(pieces))
        return loss

    expect_the_plain_gradients(
        two_layers,
        several_passes(3),
        plain_run,
        num_slices=4,
        num_microbatches=pieces,
    )


@case
def passes_that_go_backward_in_another_order_than_forward_are_added_in_that():
    def run(net):
        """The second of three passes is the last that autograd runs: its thread begins to count."""
        losses = [net(batch(1)).square().mean()]
        other = threading.Thread(target=lambda: losses.append(net(batch(2)).square().mean()))
        other.start()
        other.join()
        losses.append(net(batch(3)).square().mean())
        return losses[0] + losses[1] + losses[2]

    for _ in range(100):  # this thread counts above the other's
        batch().requires_grad_().sin()
    expect_the_plain_gradients(two_layers, run, num_slices=2)


@case
def a_retained_graph_of_several_passes_is_added_as_often_as_it_runs():
    def run_twice(net):
        net.zero_grad()
        loss = several_passes(3)(net)
        loss.backward(retain_graph=True)
        loss.backward()
        return [p.grad.clone() for p in net.parameters()]

    expected = run_twice(two_layers().cuda())
    net = spillway.OffloadModel(two_layers(), "cuda", num_slices=2)
    for _ in range(RUNS):
        assert same(run_twice(net), expected)


@case
def what_several_passes_leave_behind_is_nothing():
    """A node that later runs share lives as long as a graph has it."""
    net = spillway.OffloadModel(two_layers(), "cuda", num_slices=2, num_microbatches=2)
    run = several_passes(3)
    expected = gradients(net, run)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    for _ in range(20):
        dropped = run(net)
        assert same(gradients(net, run), expected)
        del dropped
    torch.cuda.synchronize()
    spillway.step()
    assert torch.cuda.memory_allocated() <= before
