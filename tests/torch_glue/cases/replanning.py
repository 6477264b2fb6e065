# SPDX-License-Identifier: Apache-2.0
"""To plan again, for other shapes or with other wishes, leaves nothing behind of the plan before."""

import contextlib

import spillway
import torch

from cases import case
from cases.measure import Copied, plenty, residency, same

LAYERS = 12


def network():
    torch.manual_seed(1)
    layers = (torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.Tanh()) for _ in range(LAYERS))
    return torch.nn.Sequential(*layers).cuda()


def step(net, rows, region):
    x = torch.randn(rows, 32, generator=torch.Generator().manual_seed(rows)).cuda()
    with region:
        loss = net(x * 1).square().sum()
    loss.backward()
    return [p.grad for p in net.parameters()]


def hooks(net):
    """Of all its modules and parameters."""
    kinds = ("_forward_pre_hooks", "_forward_hooks", "_backward_hooks", "_backward_pre_hooks")
    of_modules = sum(len(getattr(module, kind)) for module in net.modules() for kind in kinds)
    return of_modules + sum(
        len(p._backward_hooks or ()) + len(p._post_accumulate_grad_hooks or ()) for p in net.parameters()
    )


@case
def plans_of_new_shapes_leave_nothing_on_the_device_or_the_host():
    net = network()
    held, rows = [], 32
    for region in (spillway.CPUOffload(0.5, tag="new shapes"), spillway.offload(budget=plenty(), tag="new")):
        for _ in range(2):
            with Copied() as copied:
                for _ in range(20):
                    rows += 1
                    step(net, rows, region)
                    net.zero_grad()
            torch.cuda.synchronize()
            torch._C._cuda_clearCublasWorkspaces()  # a new shape may have wanted one of another size
            held.append((torch.cuda.memory_allocated(), residency()["on_host_bytes"], hooks(net)))
            assert copied.out > 0
    assert held == held[:1] * 4 and held[0][1:] == (0, 0), held


@case
def a_model_that_is_given_another_budget_has_that_one_and_no_more_hooks():
    net = network()
    torch.cuda.reset_peak_memory_stats()
    expected = [grad.clone() for grad in step(net, 64, spillway.compat.NoOpManager())]
    less = torch.cuda.max_memory_allocated() - 1
    net.zero_grad()
    spillway.offload(net, budget="1GiB", tag="given first")
    for _ in range(2):  # workspaces are made
        step(net, 64, contextlib.nullcontext())
        net.zero_grad()
    counts, offloaded = [hooks(net)], []
    for tag in ("given again", "given first"):
        for budget in (plenty(), less, plenty()):
            # So little is left beside workspaces that pages alone exceed it.
            assert spillway.offload(net, budget=budget, tag=tag, over_budget="warn") is net
            for _ in range(2):
                with Copied() as out:
                    assert same(step(net, 64, contextlib.nullcontext()), expected)
                net.zero_grad()
            counts.append(hooks(net))
            offloaded.append(out.out > 0)
    assert counts == counts[:1] * 7 and offloaded == [False, True, False] * 2, (counts, offloaded)
