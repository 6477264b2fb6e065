# SPDX-License-Identifier: Apache-2.0
"""Checkpoints in a process where the GPU has not been used yet."""

from conftest import EMULATED

SOURCE = """
import spillway, torch

def function(x):
    x = x.cuda()
    return torch.nn.functional.dropout(x, 0.5) * torch.rand_like(x)

torch.manual_seed(3)
x = torch.randn(64, 64, requires_grad=True)
assert not torch.cuda.is_initialized()
found = spillway.checkpoint(function, x)
found.sum().backward()
drawn = torch.rand(4, device="cuda")

torch.cuda.manual_seed(3)
counterpart = x.detach().requires_grad_()
plain = function(counterpart)
plain.sum().backward()
after = torch.rand(4, device="cuda")
report([torch.equal(*pair) for pair in ((found, plain), (x.grad, counterpart.grad), (drawn, after))])
"""


def test_random_numbers_of_a_device_that_the_function_uses_first_are_drawn_again(program):
    settings = {"SPILLWAY_EMULATE_SCHEDULE": "late"} if EMULATED else {}
    assert program(SOURCE, **settings) == [True, True, True]
