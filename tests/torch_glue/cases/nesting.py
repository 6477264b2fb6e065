# SPDX-License-Identifier: Apache-2.0
"""The innermost context has the saved tensors."""

import spillway
import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from cases import case
from cases.measure import Copied, same_bits


def work(x):
    return ((x * 2).sigmoid() * 3).tanh().sum()


def gradient(forward):
    torch.manual_seed(11)
    x = torch.randn(64, 64, device="cuda", requires_grad=True)
    forward(x).backward()
    return x.grad


@case
def python_hooks_inside_a_region_have_the_saved_tensors():
    packed = []

    def forward(x):
        with (
            spillway.CPUOffload(1, tag="outside"),
            saved_tensors_hooks(lambda t: packed.append(t.shape) or t, lambda t: t),
        ):
            return work(x)

    with Copied() as copied:
        ours = gradient(forward)
    assert len(packed) >= 2 and copied.out == 0
    assert same_bits(ours, gradient(work))


@case
def a_region_inside_python_hooks_has_the_saved_tensors():
    packed = []

    def forward(x):
        with (
            saved_tensors_hooks(lambda t: packed.append(t.shape) or t, lambda t: t),
            spillway.CPUOffload(1, tag="inside"),
        ):
            return work(x)

    with Copied() as copied:
        ours = gradient(forward)
    assert not packed and copied.out > 0
    assert same_bits(ours, gradient(work))


@case
def after_the_inner_hooks_the_region_has_the_saved_tensors_again():
    def forward(x):
        with spillway.CPUOffload(1, tag="again"):
            with saved_tensors_hooks(lambda t: t, lambda t: t):
                y = x * 2
            return y.sigmoid().sum()

    with Copied() as copied:
        gradient(forward)
    assert copied.out == 64 * 64 * 4


@case
def a_checkpoint_inside_a_region_moves_its_inputs_alone():
    def forward(x):
        with spillway.CPUOffload(1, tag="checkpoint"):
            return checkpoint(work, x * 2, use_reentrant=False)

    with Copied() as copied:
        ours = gradient(forward)
    assert copied.out == 64 * 64 * 4, copied.out
    assert same_bits(ours, gradient(lambda x: work(x * 2)))


@case
def a_reentrant_checkpoint_inside_a_region_equals_plain():
    def forward(x):
        with spillway.CPUOffload(1, tag="reentrant"):
            return checkpoint(work, x * 2, use_reentrant=True)

    with Copied() as copied:
        ours = gradient(forward)
    assert copied.out > 0
    assert same_bits(ours, gradient(lambda x: work(x * 2)))


@case
def a_region_inside_a_checkpoint_equals_plain():
    def inner(x):
        with spillway.CPUOffload(1, tag="recomputed"):
            return work(x)

    with Copied() as copied:
        ours = gradient(lambda x: checkpoint(inner, x * 2, use_reentrant=False))
    # In the second run, which is on the thread that goes backward; in the first PyTorch has them.
    assert copied.out > 0
    assert same_bits(ours, gradient(lambda x: work(x * 2)))


@case
def functorch_gradients_work_inside_a_region():
    x = torch.randn(64, 64, device="cuda")
    with spillway.CPUOffload(1, tag="functorch"):
        ours = torch.func.grad(work)(x)
        with Copied() as copied:
            gradient(work)
    assert copied.out > 0  # what functorch wraps stays, and the region is in force
    assert same_bits(ours, torch.func.grad(work)(x))


@case
def autocast_training_equals_plain():
    def train(ratio, dtype):
        torch.manual_seed(3)
        net = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(3))).cuda()
        x = torch.randn(32, 64, device="cuda")
        with (
            spillway.CPUOffload(ratio, tag=f"autocast {ratio}"),
            torch.autocast("cuda", dtype=dtype),
        ):
            loss = net(x).float().square().mean()
        loss.backward()
        return [p.grad for p in net.parameters()]

    for dtype in (torch.bfloat16, torch.float64):
        with Copied() as copied:
            ours = train(1, dtype)
        # The batch's cast, the other layers' inputs, and what the loss squares: casts of weights stay.
        assert copied.out == 32 * 64 * (3 * dtype.itemsize + 4), (dtype, copied.out)
        assert all(same_bits(a, b) for a, b in zip(ours, train(0, dtype), strict=True))
