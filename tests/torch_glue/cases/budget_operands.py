# SPDX-License-Identifier: Apache-2.0
"""Recomputation needs its inputs on the device at the same time; offloading does not. Budgets without room
for recomputation are met by offloading."""

import spillway
from torch.nn import functional as F

from cases import case
from cases.budgets import step
from cases.measure import Copied, last, same_bits

BLOCKS = 3


def gated(x):
    """Each block's product of gate and value is recomputed from both, and these from its input."""
    for _ in range(BLOCKS):
        gate, value = x * 1.5, x * 0.5
        x = x + (F.silu(gate) * value).square()
    return x.sum()


def smallest():
    try:
        step(spillway.offload(budget=1), model=gated)
    except spillway.BudgetError as error:
        return error.smallest
    raise AssertionError("a budget of a byte was met")


def all_again(tag):
    """The peak of a step in which all that can be is recomputed, and nothing kept."""
    step(spillway.CPUOffload(1, tag="warm"), model=gated)
    peak = step(spillway.offload(budget="1GiB", tag=tag), model=gated)[1]
    spillway.step()
    totals = last(tag)
    assert totals["recomputed_bytes"] > 0, totals
    return peak


@case
def the_smallest_budget_that_an_error_names_is_met_where_things_are_recomputed():
    recorded, least = all_again("again"), smallest()
    # PyTorch's allocator has offloaded memory back later than released memory.
    assert least < recorded if spillway.stats()["uses_spillway"] else least == recorded, (least, recorded)
    expected = step(spillway.compat.NoOpManager(), model=gated)[0]
    for budget in {least, (least + recorded) // 2}:
        region = spillway.offload(budget=budget, tag=f"tight-{budget}")
        step(region, model=gated)
        for _ in range(4):
            with Copied() as copied:
                gradient, peak = step(region, model=gated)
            assert peak <= budget, (peak, budget, least, recorded)
            assert same_bits(gradient, expected)
        # Over PyTorch's allocator the smallest budget is that of a step that recomputes everything.
        assert copied.out > 0 or budget > least or not spillway.stats()["uses_spillway"]
        spillway.step()


@case
def a_budget_with_room_for_what_is_computed_from_moves_less():
    recorded, least = all_again("again-for-room"), smallest()
    expected = step(spillway.compat.NoOpManager(), model=gated)[0]
    offloaded = {}
    for budget in (least, recorded):
        region = spillway.offload(budget=budget, tag=f"room-{budget}")
        for _ in range(3):
            gradient = step(region, model=gated)[0]
        assert same_bits(gradient, expected)
        offloaded[budget] = last(f"room-{budget}")["offloaded_bytes"]
        spillway.step()
    assert offloaded[recorded] <= offloaded[least] and (
        least == recorded or offloaded[recorded] < offloaded[least]
    ), offloaded
