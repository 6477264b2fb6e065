# SPDX-License-Identifier: Apache-2.0
"""Of a ReLU's result that only its own backward pass needs, bits are kept."""

import contextlib
import functools

import spillway
import torch
from torch import nn
from torch.nn import functional as F

from cases import case
from cases.beside_plain import keeping, left, random
from cases.measure import an_edit_is_noticed, gradients_of_gradients, last, plenty, same

ROWS, WIDTH = 64, 96
SIZE = ROWS * WIDTH * 4


def pooled(x, w, before=lambda y: y, between=lambda y: y):
    """The mean saves nothing: nothing but the ReLU has its result."""
    return between(F.relu(before(x @ w))).mean(0)


def gradients(region, dtype=torch.float32, rows=ROWS, function=pooled):
    x = random(rows, 32).to(dtype)
    w = random(32, WIDTH, seed=1).to(dtype).requires_grad_()
    x[0], x[1], x[2, 0] = 0, -0.0, float("nan")
    x.requires_grad_()
    factor = random(WIDTH, seed=2).to(dtype)
    x @ w  # its workspace, where it has none
    before = torch.cuda.memory_allocated()
    with region:
        loss = (function(x, w) * factor).sum()
    held = torch.cuda.memory_allocated() - before
    loss.backward()
    return [loss.detach(), x.grad, w.grad], held


def gradients_while_held(region):
    """The program has the result until the backward pass is over."""
    mine = []

    def holding(y):
        mine.append(y)
        return y

    return gradients(region, function=functools.partial(pooled, between=holding))


def gradients_of_scaled(region, saves_between):
    """Of a product that is a function of a ReLU's result."""
    v = random(WIDTH, 8, seed=3).requires_grad_()
    x, w = random(ROWS, 32).requires_grad_(), random(32, WIDTH, seed=1).requires_grad_()
    with region:
        scaled = F.relu(x @ w) * 0.3
        between = x.cumsum(0).tanh().sum() if saves_between else 0
        loss = (scaled @ v).square().sum() + between
        del scaled
    loss.backward()
    return [x.grad, w.grad, v.grad]


def bits_give_the_same_gradients(dtype, rows):
    expected, kept = gradients(keeping(), dtype, rows)
    for _ in range(2):
        actual, held = gradients(spillway.recompute(), dtype, rows)
        assert same(expected, actual)
        size = rows * WIDTH * dtype.itemsize
        assert left() == (size, size), left()
    bits = (rows * WIDTH + 7) // 8
    assert kept - held >= size - (bits + 512), (kept, held, size)


for name, dtype, rows in (
    ("single", torch.float32, ROWS),
    ("bfloat16", torch.bfloat16, ROWS),
    ("double", torch.float64, ROWS),
    ("half_of_an_odd_number", torch.float16, 61),
):
    claim = functools.partial(bits_give_the_same_gradients, dtype, rows)
    claim.__name__ = f"bits_of_relu_in_{name}_give_the_same_gradients"
    case(claim)


@case
def a_number_of_elements_that_is_no_multiple_of_eight_has_its_bits():
    def run(region):
        x = random(1, 1021).requires_grad_()
        factor = random(1021, seed=2)
        with region:
            loss = (F.relu(x.cumsum(1)).sum(0) * factor).sum()
        loss.backward()
        return [loss.detach(), x.grad]

    assert same(run(keeping()), run(spillway.recompute()))
    assert left() == (1021 * 4, 1021 * 4), left()


@case
def channels_last_has_its_bits():
    def run(region):
        x = random(4, 8, 6, 6).to(memory_format=torch.channels_last).requires_grad_()
        factor = random(8, seed=2)
        with region:
            loss = (F.relu(x.cumsum(1)).mean((0, 2, 3)) * factor).sum()
        loss.backward()
        return [loss.detach(), x.grad]

    assert same(run(keeping()), run(spillway.recompute()))
    assert left()[1] == 4 * 8 * 6 * 6 * 4, left()


@case
def what_another_node_saves_too_is_kept_as_it_is():
    v = random(WIDTH, 8, seed=3).requires_grad_()

    def run(region):
        found, _ = gradients(region, function=lambda x, w: (F.relu(x @ w) @ v).mean(1).repeat(2)[:WIDTH])
        v.grad, grad = None, v.grad
        return [*found, grad]

    assert same(run(keeping()), run(spillway.recompute()))
    assert left() == (0, 0), left()


@case
def what_the_program_holds_is_kept_as_it_is():
    expected, _ = gradients(keeping())
    actual, _ = gradients_while_held(spillway.recompute())
    assert same(expected, actual)
    assert left() == (0, 0), left()
    assert last("recompute")["offloadable_bytes"] >= SIZE


@case
def what_is_held_to_the_end_moves_as_the_region_around_states():
    expected, _ = gradients(keeping())
    with spillway.CPUOffload(1, tag="moved"):
        actual, _ = gradients_while_held(spillway.recompute())
    assert same(expected, actual)
    assert last("moved")["offloaded_bytes"] >= SIZE, last("moved")


@case
def what_is_held_to_the_end_moves_after_the_stream_that_made_it():
    mine = []
    side = torch.cuda.Stream()

    def run(around, region):
        x = random(ROWS, WIDTH).requires_grad_()
        torch.cuda.synchronize()
        with around, region, torch.cuda.stream(side):
            mine.append(F.relu(x.sort(0).values))
            loss = mine[-1].mean(0).square().sum()
        mine.pop()
        torch.cuda.current_stream().wait_stream(side)
        loss.backward()
        return [loss.detach(), x.grad]

    expected = run(keeping(), keeping())
    assert same(expected, run(spillway.CPUOffload(1, tag="moved_aside"), spillway.recompute()))
    assert last("moved_aside")["offloaded_bytes"] >= SIZE, last("moved_aside")


@case
def what_is_computed_from_a_result_finds_the_result():
    plain = gradients_of_scaled(keeping(), saves_between=False)
    assert same(plain, gradients_of_scaled(spillway.recompute(), saves_between=False))


@case
def a_result_that_waits_is_given_to_who_computes_from_it():
    def run(region):
        w, v = random(WIDTH, WIDTH, seed=1).requires_grad_(), random(WIDTH, 8, seed=3).requires_grad_()
        with region:
            first = F.relu(w.cumsum(0))
            second = F.relu(first * 0.5)  # of the first one, which waits and is still held
            loss = (second @ v).square().sum() + first.mean()
            del first, second
        loss.backward()
        return [w.grad, v.grad]

    assert same(run(keeping()), run(spillway.recompute()))
    assert left()[1] > 0, left()


@case
def what_is_computed_from_a_result_with_bits_is_kept():
    plain = gradients_of_scaled(keeping(), saves_between=True)
    # What is saved between finds that nothing references the result.
    assert same(plain, gradients_of_scaled(spillway.recompute(), saves_between=True))
    assert left()[1] >= SIZE, left()


@case
def an_edit_of_a_result_with_bits_is_noticed():
    x = random(ROWS, WIDTH).requires_grad_()
    with spillway.recompute():
        y = F.relu(x.cumsum(1))
        loss = y.sum()
        with torch.no_grad():
            y.add_(1)
        del y
        after = F.relu(x.cumsum(1)).sum()  # the edited one is released with the save of this one
    with an_edit_is_noticed():
        loss.backward()
    after.backward()


@case
def second_derivatives_have_their_bits():
    def run(region):
        torch.manual_seed(3)
        net = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Flatten(0), nn.Linear(64 * 16, 4)).cuda()
        x = random(16, 32).requires_grad_()
        with region:
            first = F.relu(net[0](x)).mean(0)
            grads = gradients_of_gradients(net, x)
            (again,) = torch.autograd.grad(first.square().sum(), x, create_graph=True)
        again.square().sum().backward()
        return [*grads, x.grad]

    assert same(run(keeping()), run(spillway.recompute()))
    assert left()[1] > 0


@case
def planned_steps_have_the_same_bits():
    # A sum cannot be recomputed, and what follows it neither.
    function = functools.partial(pooled, before=lambda y: y.cumsum(0))
    expected, _ = gradients(keeping(), function=function)
    region = spillway.offload(budget=plenty(), tag="masks")
    released = []
    for _ in range(4):
        actual, _ = gradients(region, function=function)
        assert same(expected, actual)
        spillway.step()
        released.append(last("masks")["left_to_recompute_bytes"])
    assert released[0] == SIZE, released  # the recorded step
    assert released[-1] == 0, released  # there is plenty
    assert spillway.stats()["tags"]["masks"]["plan_mismatches"] == 0


@case
def nothing_is_left_of_bits():
    gradients(spillway.recompute())
    spillway.step()
    before = torch.cuda.memory_allocated(), spillway.stats()["saved_tensor_handles"]
    for _ in range(10):
        gradients(spillway.recompute())
    spillway.step()
    assert (torch.cuda.memory_allocated(), spillway.stats()["saved_tensor_handles"]) == before


@case
def results_of_any_size_have_plains_gradients():
    shapes = [
        (),
        *((n,) for n in range(1, 18)),
        (63,),
        (64,),
        (65,),
        (3, 3),
        (1, 1, 1),
        (2, 1, 4),
        (0,),
        (0, 3),
    ]
    for shape in shapes:
        for dtype in (torch.float32, torch.float16, torch.float64):
            found = []
            for region in (spillway.compat.NoOpManager, spillway.compat.OffloadActivations):
                count = torch.Size(shape).numel()
                x = torch.linspace(-1, 1, count, device="cuda").to(dtype).reshape(shape).requires_grad_()
                around = region() if region is spillway.compat.NoOpManager else region(min_offload_size=0)
                inside = (
                    contextlib.nullcontext()
                    if region is spillway.compat.NoOpManager
                    else spillway.recompute()
                )
                with around, inside:
                    loss = F.relu(x * 2).sum()
                loss.backward()
                found.append(x.grad)
            assert same(found[:1], found[1:]), (shape, dtype)
