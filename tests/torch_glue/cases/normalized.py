# SPDX-License-Identifier: Apache-2.0
"""A normalization's running statistics stay where they are: the module has them, and its next forward pass
writes to them without a word to autograd."""

import spillway
import torch
from torch import nn

from cases import case
from cases.measure import Copied, last, plenty, same

CHANNELS = 512


def network():
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(8, CHANNELS, 3), nn.BatchNorm2d(CHANNELS), nn.ReLU(), nn.Conv2d(CHANNELS, 8, 3)
    ).cuda()


def step(net, manager, forwards=2):
    """Gradients and statistics after a step with this many forward passes before the first backward pass."""
    net.zero_grad()
    generator = torch.Generator().manual_seed(3)
    with manager:
        losses = [
            net(torch.randn(4, 8, 12, 12, generator=generator).cuda() * 1).square().sum()
            for _ in range(forwards)
        ]
    torch.cuda.synchronize()
    while losses:
        losses.pop().backward()
    return [tensor.clone() for tensor in (*(p.grad for p in net.parameters()), *net.buffers())]


@case
def running_statistics_stay_from_the_first_step_on():
    net, plain = network(), network()
    for forwards in (2, 2, 3):
        with Copied() as copied:
            found = step(net, spillway.CPUOffload(1, tag="statistics"), forwards)
        assert same(found, step(plain, spillway.compat.NoOpManager(), forwards))
        totals = last("statistics")
        assert copied.out == totals["offloaded_bytes"] == totals["offloadable_bytes"] > 0
        assert totals["skipped"]["referenced_elsewhere"] == {"storages": 2, "bytes": 2 * CHANNELS * 4}


@case
def running_statistics_stay_within_a_budget():
    expected = step(network(), spillway.compat.NoOpManager())
    with Copied() as copied:
        found = step(network(), spillway.offload(budget=plenty(), tag="budget for statistics"))
    assert same(found, expected)
    assert copied.out > 0
    assert last("budget for statistics")["skipped"]["referenced_elsewhere"]["storages"] == 2


@case
def running_statistics_stay_while_micro_batches_move():
    def train(moves):
        net = network()
        micro = spillway.microbatches(offload_activations=moves, activation_loading_horizon=1)
        with micro:
            losses = []
            for _ in range(3):
                with micro.batch():
                    losses.append(net(torch.ones(4, 8, 12, 12, device="cuda") * 1).square().sum())
            torch.cuda.synchronize()
            for loss in losses:
                loss.backward()
        return [*(p.grad for p in net.parameters()), *net.buffers()]

    with Copied() as copied:
        found = train(True)
    assert same(found, train(False)) and copied.out > 0


@case
def running_statistics_of_another_model_under_the_same_tag_stay():
    tag = "models after one another"
    with spillway.CPUOffload(1, tag=tag):
        loss = (torch.ones(999, device="cuda", requires_grad=True) * 1).sin().sum()
    loss.backward()
    with Copied() as copied:
        found = step(network(), spillway.CPUOffload(1, tag=tag))
    assert same(found, step(network(), spillway.compat.NoOpManager())) and copied.out > 0
    assert last(tag)["skipped"]["referenced_elsewhere"] == {"storages": 2, "bytes": 2 * CHANNELS * 4}


@case
def running_statistics_of_a_model_that_is_evaluated_stay():
    with Copied() as copied:
        found = step(network().eval(), spillway.CPUOffload(1, tag="evaluated"))
    assert same(found, step(network().eval(), spillway.compat.NoOpManager())) and copied.out > 0
    assert last("evaluated")["skipped"]["referenced_elsewhere"]["storages"] == 2
