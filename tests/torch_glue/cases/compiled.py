# SPDX-License-Identifier: Apache-2.0
"""Compiled parts of a model inside a region: they run, and what they save moves as what others save."""

import spillway
import torch
from torch import nn

from cases import case, case_of
from cases.measure import Copied, same_bits


class Model(nn.Module):
    """A compiled layer between two plain ones."""

    def __init__(self, backend):
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Sequential(nn.Linear(64, 256), nn.Sigmoid())
        self.middle = nn.Sequential(nn.Linear(256, 256), nn.Sigmoid(), nn.Linear(256, 256), nn.Tanh())
        self.last = nn.Sequential(nn.Linear(256, 64), nn.Sigmoid())
        if backend:
            self.middle.compile(backend=backend)

    def forward(self, x):
        return self.last(self.middle(self.first(x)))


def gradients(model, region, steps=3):
    x = torch.linspace(-1, 1, 128 * 64, device="cuda").view(128, 64)
    for _ in range(steps):
        model.zero_grad()
        with region:
            loss = model(x).square().sum()
        loss.backward()
    return [parameter.grad for parameter in model.parameters()]


def a_compiled_part_inside_a_region(backend):
    torch._dynamo.reset()
    with Copied() as plainly:
        expected = gradients(Model(backend).cuda(), spillway.compat.NoOpManager())
    with Copied() as copied:
        found = gradients(Model(backend).cuda(), spillway.CPUOffload(1, tag=f"compiled {backend}"))
    assert plainly.out == 0 < copied.back
    assert all(map(same_bits, found, expected))
    last = spillway.stats()["tags"][f"compiled {backend}"]["last"]
    # The results of four activations, two of them inside the compiled part.
    assert last["offloaded_bytes"] == (3 * 128 * 256 + 128 * 64) * 4, last


for backend in ("eager", "aot_eager"):
    case_of(
        f"a_part_compiled_with_{backend}_moves_its_saved_tensors_and_computes_the_same",
        a_compiled_part_inside_a_region,
        backend,
    )


@case
def a_region_inside_a_compiled_function_is_left_to_the_compiler():
    torch._dynamo.reset()
    layer = nn.Linear(64, 64).cuda()

    @torch.compile(backend="aot_eager")
    def compiled(x):
        with spillway.CPUOffload(1, tag="inside"):
            return layer(x * 1).sigmoid().sum()

    x = torch.randn(64, 64, device="cuda")
    expected = torch.autograd.grad(layer(x).sigmoid().sum(), layer.weight)[0]
    with Copied() as copied:
        assert same_bits(torch.autograd.grad(compiled(x), layer.weight)[0], expected)
    assert copied.out > 0
