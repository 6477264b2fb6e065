# SPDX-License-Identifier: Apache-2.0
"""`spillway.offload(model)` and `torch.compile(model)`, in both orders."""

import warnings

import pytest
import spillway
import torch
from torch import nn
from torch._dynamo.utils import counters


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(256, 1024), nn.Tanh(), nn.Linear(1024, 256)) for _ in range(3)
        )

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


def offloaded(model):
    return spillway.offload(model, budget="8MiB", tag="order", over_budget="warn")


def compiled_in_place(model):
    model.compile()
    return model


ORDERS = {
    "compiled_first": lambda net: offloaded(torch.compile(net)),
    "offloaded_first": lambda net: torch.compile(offloaded(net)),
    "then_compiled_in_place": lambda net: compiled_in_place(offloaded(net)),
    "compiled_in_place_first": lambda net: offloaded(compiled_in_place(net)),
}


@pytest.mark.parametrize("order", ORDERS)
def test_there_is_one_graph_whose_tensors_leave_the_gpu(order):
    torch.compiler.reset()
    counters.clear()
    run, x = ORDERS[order](Net().cuda()), torch.randn(512, 256, device="cuda")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # the compiler's
        warnings.simplefilter("ignore", RuntimeWarning)  # of the budget, which is too small
        for _ in range(3):
            run(x).square().mean().backward()
            spillway.step()
    assert counters["stats"]["unique_graphs"] == 1
    assert not counters["graph_break"]
    assert spillway.stats()["tags"]["order"]["last"]["offloaded_bytes"] >= 3 * 512 * 1024 * 4
