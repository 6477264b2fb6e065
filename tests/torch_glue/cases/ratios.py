# SPDX-License-Identifier: Apache-2.0
"""The ratio is exact bytes, from the first step on."""

import functools

import spillway
import torch

from cases import case
from cases.measure import EMULATED, last, same_bits

WIDTHS = (700, 1300, 300, 2100, 900, 500, 1700)


def forward(rows):
    """Saves one tensor of each width; nothing else references them."""
    total = torch.zeros((), device="cuda")
    for width in WIDTHS:
        x = torch.randn(rows, width, device="cuda", requires_grad=True)
        total = total + (x * 2).sigmoid().sum()  # sigmoid saves its result
    return total


def steps_keep_the_ratio(ratio):
    tag = f"ratio {ratio}"
    for rows in (8, 8, 8, 24, 24, 8):
        with spillway.CPUOffload(ratio, tag=tag):
            loss = forward(rows)
        loss.backward()
        step = last(tag)
        largest = rows * max(WIDTHS) * 4
        assert step["offloadable_bytes"] == rows * sum(WIDTHS) * 4, step
        assert step["offloaded_bytes"] <= ratio * step["offloadable_bytes"], step
        assert step["offloaded_bytes"] > ratio * step["offloadable_bytes"] - largest, step
        assert step["fetched_bytes"] <= step["offloaded_bytes"], step
        # On a real GPU the backward pass may come before the copies, and then nothing need are fetched.
        assert step["fetched_bytes"] > 0 or not EMULATED, step


for ratio in (0.1, 0.25, 0.5, 0.75, 0.9):
    claim = functools.partial(steps_keep_the_ratio, ratio)
    claim.__name__ = f"each_step_moves_at_most_{ratio}_and_less_than_one_tensor_below"
    case(claim)


@case
def ratio_one_moves_all_that_can_move_from_the_first_step_on():
    for _ in range(3):
        with spillway.CPUOffload(1, tag="all"):
            loss = forward(8)
        loss.backward()
        assert last("all")["offloaded_bytes"] == last("all")["offloadable_bytes"] == 8 * sum(WIDTHS) * 4


@case
def ratio_zero_offloads_nothing_and_counts_offloadable_bytes():
    with spillway.CPUOffload(0, tag="none"):
        loss = forward(8)
    loss.backward()
    assert last("none")["offloaded_bytes"] == 0
    assert last("none")["offloadable_bytes"] == 8 * sum(WIDTHS) * 4


@case
def parameters_are_skipped_and_counted_once_per_step():
    layer = torch.nn.Linear(64, 64, bias=False).cuda()
    with spillway.CPUOffload(1, tag="parameters"):
        x = torch.randn(8, 64, device="cuda", requires_grad=True)
        loss = layer(layer(x.sigmoid())).sum()
    loss.backward()
    assert last("parameters")["skipped"]["parameter"]["bytes"] == 64 * 64 * 4


@case
def a_tensor_that_something_holds_is_moved_once_and_then_left_alone():
    held = torch.randn(64, 64, device="cuda")
    for step in range(3):
        with spillway.CPUOffload(1, tag="held"):
            x = torch.randn(64, 64, device="cuda", requires_grad=True)
            loss = (x * held).sum()
        loss.backward()
        moved = last("held")["offloaded_bytes"]
        assert moved == (64 * 64 * 4 if step == 0 else 0), (step, moved)
    assert last("held")["skipped"]["referenced_elsewhere"] == {"storages": 1, "bytes": 64 * 64 * 4}


@case
def a_storage_that_python_has_looked_at_is_not_held_elsewhere():
    for step in range(3):
        with spillway.CPUOffload(0.5, tag="looked at"):
            y = torch.randn(64, 64, device="cuda", requires_grad=True).sigmoid()
            z = y.tanh()
            y.untyped_storage(), z.untyped_storage()
            loss = z.sum()
            del y, z
        loss.backward()
        seen = last("looked at")
        assert "referenced_elsewhere" not in seen["skipped"], (step, seen)
        assert seen["offloaded_bytes"] == 64 * 64 * 4, (step, seen)


@case
def a_storage_that_python_holds_is_somebodys():
    for step in range(3):
        with spillway.CPUOffload(1, tag="storage held"):
            y = torch.randn(64, 64, device="cuda", requires_grad=True) * 1
            storage = y.untyped_storage()
            loss = y.sigmoid().sum() + (y * y).sum()
            del y
        loss.backward()
        moved = last("storage held")["offloaded_bytes"]
        # The sigmoid's result moves each time.
        assert moved == (2 if step == 0 else 1) * 64 * 64 * 4, (step, moved)
    del storage


@case
def a_held_tensor_that_the_first_step_kept_is_not_chosen_by_the_second():
    held = torch.randn(64, 64, device="cuda")
    for step in range(3):
        with spillway.CPUOffload(0.5, tag="kept"):
            x = torch.randn(64, 64, device="cuda", requires_grad=True)
            loss = ((x * held).sigmoid() * held).sum()
        loss.backward()
        skipped = last("kept")["skipped"].get("referenced_elsewhere", {"storages": 0})["storages"]
        assert skipped == (0 if step == 0 else 1), (step, skipped)


def holding_its_input(held, tag):
    """What a step moves of a saved tensor that its caller does or does not hold."""
    with spillway.CPUOffload(1, tag=tag):
        x = torch.randn(64, 64, device="cuda").requires_grad_() * 1
        y = x.sin()
        if not held:
            del x
    y.sum().backward()
    return last(tag)["offloaded_bytes"]


@case
def a_tensor_that_was_held_once_is_moved_again_one_step_after_it_is_unreferenced():
    moved = [holding_its_input(held, "once") for held in (False, True, True, False, False, False)]
    assert [bytes > 0 for bytes in moved] == [True, True, False, False, True, True], moved


@case
def a_tensor_that_another_model_of_the_tag_holds_is_moved_anyway():
    moved = [holding_its_input(step % 2 == 0, "two models") for step in range(16)]
    mine = moved[1::2]
    assert [bytes > 0 for bytes in mine] == [False] + [True] * 7, mine


def unrolled(cell, steps, region):
    """The gradients of a recurrent cell over this many steps."""
    torch.manual_seed(steps)
    cell.zero_grad()
    with region:
        h = torch.zeros(32, 64, device="cuda")
        for _ in range(steps):
            h = cell(torch.randn(32, 64, device="cuda"), h).tanh()
        loss = h.sum()
    loss.backward()
    return [p.grad.cpu() for p in cell.parameters()]


@case
def no_step_moves_more_than_its_share_however_their_lengths_change():
    torch.manual_seed(0)
    cell = torch.nn.GRUCell(64, 64).cuda()
    largest = 32 * 5 * 64 * 4  # its workspace
    for ratio in (0.1, 0.5, 0.9):
        tag = f"unrolled {ratio}"
        for steps in (10, 10, 4, 10, 3, 10, 1, 7, 2, 10):
            expected = unrolled(cell, steps, spillway.compat.NoOpManager())
            found = unrolled(cell, steps, spillway.CPUOffload(ratio, tag=tag))
            step = last(tag)
            share = ratio * step["offloadable_bytes"]
            assert share - largest < step["offloaded_bytes"] <= share, (steps, ratio, step)
            assert steps < 3 or step["offloaded_bytes"] > 0
            assert all(same_bits(a, b) for a, b in zip(found, expected, strict=True)), (steps, ratio)


@case
def a_waiting_storage_saved_twice_is_fetched_for_both_uses():
    def step(region):
        torch.manual_seed(0)
        x = torch.randn(64, 100, device="cuda", requires_grad=True)
        with region:
            y = (x * 2).sigmoid()
            z = y[:32].exp() * y[:32] + y[32:].t().square().t()
            for _ in range(6):
                z = (z * 1.5).sigmoid()
        z.sum().backward()
        return x.grad.cpu()

    expected = step(spillway.compat.NoOpManager())
    for _ in range(4):
        assert same_bits(step(spillway.CPUOffload(0.4, tag="twice")), expected)
    assert 0 < last("twice")["fetched_bytes"] <= last("twice")["offloaded_bytes"]


@case
def the_plan_moves_the_earliest_and_not_what_is_used_again_at_once():
    widths = (100, 100, 100, 10)

    def step():
        with spillway.CPUOffload(0.5, tag="plan"):
            x = torch.randn(64, 1, device="cuda", requires_grad=True)
            for width in widths:
                x = (x.mean(1, keepdim=True) * torch.ones(1, width, device="cuda")).sigmoid()
            loss = x.sum()
        del x
        loss.backward()
        return last("plan")["offloaded_bytes"] // (64 * 4)

    # Evenly: the second, and what still fits. Planned: the first; the last one fits, too.
    assert [step() for _ in range(3)] == [110, 100, 100]


@case
def an_optimizer_that_steps_inside_the_backward_pass_does_not_end_the_step():
    layers = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Sigmoid(), torch.nn.Linear(64, 64)).cuda()
    stepped = []
    for parameter in layers.parameters():
        optimizer = torch.optim.SGD([parameter], lr=0.1)

        def after(_parameter, optimizer=optimizer):
            optimizer.step()
            optimizer.zero_grad()
            stepped.append(spillway.stats()["steps"])

        parameter.register_post_accumulate_grad_hook(after)
    before = spillway.stats()["steps"]
    with spillway.CPUOffload(1, tag="in backward"):
        loss = layers(torch.randn(128, 64, device="cuda")).square().sum()
    loss.backward()
    del loss
    assert stepped and stepped[0] == before, (stepped, before)
    assert spillway.stats()["steps"] == before + 1
    assert last("in backward")["fetched_bytes"] > 0


@case
def a_step_that_an_exception_ended_leaves_the_plan_as_it_was():
    def step():
        with spillway.CPUOffload(0.5, tag="given up"):
            total = forward(8)
        total.backward()
        return last("given up")["offloaded_bytes"]

    step()
    planned = step()
    try:
        with spillway.CPUOffload(0.5, tag="given up"):
            torch.randn(8, WIDTHS[0], device="cuda", requires_grad=True).sigmoid()
            raise ValueError
    except ValueError:
        pass
    assert step() == planned
    assert spillway.stats()["tags"]["given up"]["plan_mismatches"] == 0
