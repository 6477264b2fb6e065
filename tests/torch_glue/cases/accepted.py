# SPDX-License-Identifier: Apache-2.0
"""What users of such systems rely on and no other folder of cases claims: ../README.md has the list."""

import gc
import os
import random
import weakref

import spillway
import torch
from torch import nn

from cases import case
from cases.measure import Copied, last, residency, same, same_bits, save

WIDTH = 64
UNIT = 32 * WIDTH * 4


def release():
    """Of what a copy out has read."""
    torch.cuda.synchronize()
    spillway.step()


def batch(rows=32, seed=3):
    """Nothing else references it."""
    return torch.randn(rows, WIDTH, generator=torch.Generator().manual_seed(seed)).cuda()


def network(depth=3):
    torch.manual_seed(1)
    return nn.Sequential(*(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(depth))).cuda()


def region(tag):
    return spillway.CPUOffload(1, tag=tag)


class ViewOfSaved(torch.autograd.Function):
    """Its gradient is a view of what it saved."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return x.view(-1).view_as(x)


@case
def a_gradient_that_views_what_was_fetched_keeps_its_values():
    def run(manager):
        x = batch().requires_grad_()
        with manager:
            y = x * 1
            for _ in range(4):
                y = ViewOfSaved.apply(y.tanh())
        release()
        y.sum().backward()
        return x.grad

    with Copied() as copied:
        found = run(region("views"))
    assert same_bits(found, run(spillway.compat.NoOpManager())) and copied.out > 0 and copied.back > 0


@case
def an_adapter_on_a_frozen_base_has_the_plain_gradients():
    class Adapted(nn.Module):
        def __init__(self):
            super().__init__()
            self.base = nn.Linear(WIDTH, WIDTH).requires_grad_(False)
            self.down, self.up = nn.Linear(WIDTH, 4, bias=False), nn.Linear(4, WIDTH, bias=False)

        def forward(self, x):
            return (self.base(x) + self.up(self.down(x))).tanh()

    def run(manager):
        torch.manual_seed(1)
        net = nn.Sequential(*(Adapted() for _ in range(3))).cuda()
        with manager:
            loss = net(batch()).square().sum()
        release()
        loss.backward()
        return [p.grad for p in net.parameters()]

    with Copied() as copied:
        found = run(spillway.compat.OffloadActivations())
    assert same(found, run(spillway.compat.NoOpManager())) and copied.out > 0 and copied.back > 0
    assert sum(grad is not None for grad in found) == 6


@case
def interleaved_views_and_a_tensor_saved_three_times_have_one_host_copy():
    seen = []
    with region("interleaved"), Copied() as copied:
        base = batch()
        expected = base.cpu()
        graph = save(seen, base[:, ::2], base[:, 1::2], base, base, base)
        del base
    release()
    with Copied() as returned:
        graph.backward()
    assert (copied.out, copied.stashes) == (UNIT, 1) and (returned.back, returned.fetches) == (UNIT, 1)
    even, odd, *whole = (tensor.cpu() for tensor in seen)
    assert torch.equal(even, expected[:, ::2]) and torch.equal(odd, expected[:, 1::2])
    assert all(torch.equal(tensor, expected) for tensor in whole)


@case
def a_new_tensor_at_an_address_that_was_freed_is_no_alias():
    seen, graphs, places = [], [], []
    with region("addresses"), Copied() as copied:
        for seed in range(4):
            tensor = batch(seed=seed)
            places.append(tensor.data_ptr())
            graphs.append(save(seen, tensor))
            del tensor
            torch.cuda.synchronize()
    assert len(set(places)) < len(places), "no address came again"
    release()
    for graph in graphs:
        graph.backward()
    assert copied.out == 4 * UNIT
    assert all(torch.equal(seen[seed].cpu(), batch(seed=seed).cpu()) for seed in range(4))


@case
def device_memory_falls_by_the_bytes_that_moved_and_is_fetched_to_where_it_was():
    def held(manager):
        net = network()
        release()
        before = torch.cuda.memory_allocated()
        with manager, Copied() as copied:
            loss = net(batch()).sum()
        release()
        after = torch.cuda.memory_allocated() - before
        loss.backward()
        net.zero_grad()
        del loss
        release()
        assert torch.cuda.memory_allocated() == before
        return after, copied.out

    network()(batch()).sum().backward()  # makes workspaces
    plain, nothing = held(spillway.compat.NoOpManager())
    less, offloaded = held(region("falls"))
    assert nothing == 0 and offloaded > 0 and plain - less == offloaded, (plain, less, offloaded)


@case
def a_graph_ends_without_the_collector_of_cycles():
    gc.disable()
    try:
        with region("cycles"), Copied() as copied:
            x = batch().requires_grad_() * 1
            seen = weakref.ref(x)
            loss = x.tanh().sum()
            del x
        release()
        assert seen() is None and copied.out > 0 and residency()["on_host_bytes"] > 0
        del loss
        release()
        assert residency()["on_host_bytes"] == 0
    finally:
        gc.enable()


@case
def a_captured_step_keeps_its_tensors_and_counts_them():
    net, x = network(), batch()

    def train():
        with region("captured"):
            loss = net(x * 1).square().sum()
        loss.backward()

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream), Copied() as warm:
        train()
    torch.cuda.current_stream().wait_stream(stream)
    assert warm.out > 0
    expected = [p.grad.clone() for p in net.parameters()]
    net.zero_grad()
    spillway.step()
    graph = torch.cuda.CUDAGraph()
    with Copied() as captured, torch.cuda.graph(graph):
        train()
    spillway.step()
    assert captured.out == 0
    assert any(
        count["storages"] > 0 for reason, count in last("captured")["skipped"].items() if "captur" in reason
    )
    for _ in range(2):
        for p in net.parameters():
            p.grad.zero_()
        graph.replay()
        assert same([p.grad for p in net.parameters()], expected)


@case
def the_summary_counts_the_bytes_that_were_copied():
    for _ in range(2):
        with Copied() as copied:
            with region("summary"):
                loss = network()(batch()).square().sum()
            release()
            counted = last("summary")
            loss.backward()
        assert counted["offloaded_bytes"] == copied.out > 0


@case
def accumulated_gradients_equal_plain():
    def run(manager, count):
        net = network()
        for seed in range(count):
            with manager:
                loss = net(batch(seed=seed)).square().sum()
            loss.backward()
        return [p.grad for p in net.parameters()]

    for count in (1, 2):
        with Copied() as copied:
            found = run(region("accumulated"), count)
        assert same(found, run(spillway.compat.NoOpManager(), count)) and copied.out > 0


@case
def nothing_grows_over_two_hundred_steps_of_all_kinds():
    seed = int(os.environ.get("TEST_SEED", random.SystemRandom().randrange(1 << 30)))
    draw = random.Random(seed)
    net = network()
    spillway.checkpoint_wrapper(net[1], offload_to_cpu=True)
    micro = spillway.microbatches(activation_loading_horizon=2)
    held, moved_by_regions = [], 0
    with Copied() as copied:
        for number in range(200):
            kind = draw.randrange(4)
            rows = draw.choice((8, 16, 32))
            try:
                if kind == 0:
                    with micro:
                        losses = []
                        for _ in range(draw.randrange(1, 4)):
                            with micro.batch():
                                losses.append(net(batch(rows)).sum())
                        for loss in losses:
                            loss.backward()
                        del losses, loss
                else:
                    with region("grows"), Copied() as by_region:
                        y = net(batch(rows))
                        if kind == 1:
                            net(batch(rows)).exp()  # nothing uses it
                        if kind == 2:
                            raise KeyError("in the forward pass")
                    moved_by_regions += by_region.out
                    y.sum().backward()
            except KeyError:
                pass
            y = None
            net.zero_grad()
            if number % 20 == 19:
                release()
                gc.collect()
                held.append((torch.cuda.memory_allocated(), residency()["on_host_bytes"]))
    assert copied.out > moved_by_regions > 0 and copied.back > 0  # by both
    assert len(set(held)) == 1 and held[0][1] == 0, f"TEST_SEED={seed}: {held}"
