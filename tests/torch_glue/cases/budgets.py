# SPDX-License-Identifier: Apache-2.0
"""A budget is kept to the byte, by moving no more than that takes."""

import spillway
import torch

from cases import case
from cases.measure import Copied, last, same_bits

WIDTHS = (700, 1300, 300, 2100, 900, 500, 1700)


def chain(x):
    """Saves one tensor of each width, all allocated until the backward pass has used them."""
    weights = [torch.full((1, width), 1.01, device="cuda") for width in WIDTHS]
    for weight in weights:
        x = (x.mean(1, keepdim=True) * weight).sigmoid()
    return x.sum()


def upper_halves(x):
    """As chain(), of tensors whose lower halves nothing wants again."""
    weights = [torch.full((1, width), 1.01, device="cuda") for width in WIDTHS]
    for weight in weights:
        whole = x.mean(1, keepdim=True) * weight
        x = torch.cat([whole[: len(whole) // 2].sin()] * 2)
    return x.sum()


def step(region, rows=64, model=chain):
    """The gradient of a step, and its peak."""
    torch.manual_seed(rows)
    x = torch.randn(rows, 100, device="cuda", requires_grad=True)
    torch.cuda.reset_peak_memory_stats()
    with region:
        loss = model(x)
    loss.backward()
    del loss
    return x.grad.cpu(), torch.cuda.max_memory_allocated()


def measured():
    """The peak of a step where nothing moves, and that of one where everything does."""
    step(spillway.CPUOffload(1, tag="warm"))
    plain = step(spillway.compat.NoOpManager())[1]
    return plain, smallest(1)


def smallest(budget, rows=64, model=chain):
    """The error for a budget that is too small."""
    try:
        step(spillway.offload(budget=budget, recompute=False), rows, model)
    except spillway.BudgetError as error:
        assert error.budget == budget and error.device == 0
        assert error.breakdown.total == error.smallest
        return error.smallest
    raise AssertionError(f"a budget of {budget} bytes was met")


@case
def a_planned_step_needs_at_most_its_budget_and_computes_the_same():
    plain, least = measured()
    assert least < plain
    expected = step(spillway.compat.NoOpManager())[0]
    for budget in (least, (least + plain) // 2, plain):
        region = spillway.offload(budget=budget, recompute=False)
        for _ in range(4):
            with Copied() as copied:
                gradient, peak = step(region)
            assert peak <= budget, (peak, budget)
            assert same_bits(gradient, expected)
        assert (copied.out > 0) == (budget < plain), (budget, plain, copied.out)


@case
def a_planned_step_lies_less_than_one_tensor_below_its_budget():
    plain, least = measured()
    for budget in range(least, plain, (plain - least) // 7):
        region = spillway.offload(budget=budget, recompute=False)
        step(region)
        peak = step(region)[1]
        assert budget - max(WIDTHS) * 64 * 4 < peak <= budget, (peak, budget)


@case
def a_budget_counts_what_is_fetched_in_part_by_what_is_fetched():
    step(spillway.CPUOffload(1, tag="warm"), model=upper_halves)
    expected, plain = step(spillway.compat.NoOpManager(), model=upper_halves)
    least = smallest(1, model=upper_halves)
    assert least < plain
    for budget in range(least, plain, (plain - least) // 5):
        region = spillway.offload(budget=budget, recompute=False)
        step(region, model=upper_halves)
        gradient, peak = step(region, model=upper_halves)
        assert budget - max(WIDTHS) * 64 * 4 < peak <= budget, (peak, budget)
        assert same_bits(gradient, expected)
        totals = last("budget")
        assert 0 < 2 * totals["copied_bytes"] <= totals["offloaded_bytes"], totals


@case
def a_larger_budget_moves_no_more_bytes():
    plain, least = measured()
    offloaded = []
    for budget in range(least, plain + 1, (plain - least) // 12):
        region = spillway.offload(budget=budget, recompute=False)
        for _ in range(2):
            step(region)
        offloaded.append(last("budget")["offloaded_bytes"])
    assert offloaded == sorted(offloaded, reverse=True) and offloaded[0] > offloaded[-1], offloaded


@case
def a_budget_that_is_too_small_is_an_error_that_names_the_smallest_which_then_works():
    least = smallest(1)
    region = spillway.offload(budget=least, recompute=False)
    for _ in range(3):
        assert step(region)[1] <= least
    assert smallest(least - 1) == least


@case
def the_error_comes_from_the_backward_pass_that_ends_the_step():
    x = torch.randn(64, 100, device="cuda", requires_grad=True)
    with spillway.offload(budget=1):
        loss = chain(x)
    try:
        loss.backward()
    except spillway.BudgetError:
        assert x.grad is not None  # nothing of the pass is missing
    else:
        raise AssertionError("no error")
    spillway.step()  # and it is raised once


@case
def each_sequence_of_shapes_has_its_own_plan():
    step(spillway.CPUOffload(1, tag="warm"), 96)
    least = max(smallest(1, rows) for rows in (64, 96))
    region = spillway.offload(budget=least, recompute=False)
    seen = []
    for rows in (64, 96) * 4:
        peak = step(region, rows)[1]
        assert peak <= least, (rows, peak, least)
        seen.append(last("budget")["offloaded_bytes"])
    assert seen[0] > seen[4] == seen[6], seen  # the smaller shape need not move everything
    assert seen[1] >= seen[5] == seen[7] > seen[6], seen


@case
def a_model_runs_in_its_region_in_each_forward_pass():
    torch.manual_seed(0)
    layers = [torch.nn.Linear(64, 512), torch.nn.Sigmoid(), torch.nn.Linear(512, 64), torch.nn.Sigmoid()] * 2
    model = torch.nn.Sequential(*layers).cuda()
    keys = list(model.state_dict())
    assert spillway.offload(model, budget=1) is model
    x = torch.randn(128, 64, device="cuda")
    try:
        model(x).sum().backward()
    except spillway.BudgetError as error:
        least = error.smallest
    assert list(model.state_dict()) == keys
    with Copied() as copied:
        x.clone().requires_grad_().sigmoid().sum().backward()  # outside
    assert least > 0 and copied.out == 0


@case
def memory_that_is_used_between_two_steps_is_not_the_steps():
    plain, least = measured()
    region = spillway.offload(budget=plain, recompute=False)
    for _ in range(3):
        step(region)
        torch.empty(4 * plain, dtype=torch.uint8, device="cuda")  # an evaluation, say
        offloaded = last("budget")["offloaded_bytes"]
    assert offloaded == 0 and least < plain, offloaded


def missed_untold():
    """A step that will have missed its budget when its graph ends."""
    x = torch.randn(64, 100, device="cuda", requires_grad=True)
    with spillway.offload(budget=1):
        loss = chain(x)
    loss.backward(retain_graph=True)
    return loss


@case
def the_next_entry_states_that_a_budget_was_missed_where_nothing_has():
    loss = missed_untold()
    del loss
    try:
        with spillway.offload(budget=1):
            raise AssertionError("entered")
    except spillway.BudgetError as error:
        assert error.smallest > 1
    with spillway.offload(budget=1):  # once
        pass


@case
def the_end_of_a_step_and_an_optimizers_step_say_that_a_budget_was_missed():
    for end in (spillway.step, optimizer_step):
        loss = missed_untold()
        try:
            end()
        except spillway.BudgetError as error:
            assert error.smallest > 1
        else:
            raise AssertionError(f"{end.__name__} said nothing")
        del loss


def optimizer_step():
    torch.optim.SGD([torch.zeros(1, device="cuda", requires_grad=True)], lr=0.1).step()


@case
def a_models_region_is_around_what_its_other_hooks_do():
    """Also those that were registered before."""
    model = torch.nn.Linear(64, 64).cuda()
    model.register_forward_pre_hook(lambda _model, inputs: (inputs[0].sin(),))
    spillway.offload(model, budget="1GiB", recompute=False, tag="hooks")
    x = torch.randn(128, 64, device="cuda").requires_grad_() * 1
    loss = model(x).square().sum()
    del x
    loss.backward()
    # What sin() saves, and its result, which the layer saves.
    assert last("hooks")["offloadable_bytes"] == 2 * 128 * 64 * 4, last("hooks")


@case
def a_forward_pass_that_fails_leaves_the_models_region():
    model = spillway.offload(torch.nn.Linear(64, 64).cuda(), budget="1GiB", tag="failing")
    try:
        model(torch.ones(2, 3, device="cuda"))
    except RuntimeError:
        pass
    else:
        raise AssertionError("no error")
    x = torch.randn(128, 64, device="cuda", requires_grad=True)
    with Copied() as copied:
        (x * 1).sin().sum().backward()
    spillway.step()
    assert copied.out == 0 == last("failing")["offloadable_bytes"], (copied.out, last("failing"))
    with spillway.CPUOffload(1, tag="failing"):  # what is not open may have something else
        pass


@case
def two_budgets_in_a_step_are_refused_with_what_can_be_done():
    one = spillway.offload(torch.nn.Linear(64, 64).cuda(), budget="1GiB", tag="one")
    two = spillway.offload(torch.nn.Linear(64, 64).cuda(), budget="2GiB", tag="two")
    x = torch.randn(64, 64, device="cuda")
    try:
        two(one(x))
    except ValueError as error:
        assert all(word in str(error) for word in ('"one"', '"two"', "same tag", "spillway.step()")), error
    else:
        raise AssertionError("no error")
    spillway.step()
    for _ in range(3):  # in steps of their own
        for model in (one, two):
            model(x).sigmoid().sum().backward()
            torch.optim.SGD(model.parameters(), lr=0.1).step()
    tags = spillway.stats()["tags"]
    assert tags["one"]["last"]["offloadable_bytes"] > 0 < tags["two"]["last"]["offloadable_bytes"]


@case
def a_retained_graph_keeps_its_budget():
    def twice(region):
        torch.manual_seed(1)
        x = torch.randn(64, 100, device="cuda", requires_grad=True)
        torch.cuda.reset_peak_memory_stats()
        with region:
            loss = chain(x)
        loss.backward(retain_graph=True)
        loss.backward()
        del loss
        return x.grad.cpu(), torch.cuda.max_memory_allocated()

    twice(spillway.CPUOffload(1, tag="warm"))
    expected, plain = twice(spillway.compat.NoOpManager())
    try:
        twice(spillway.offload(budget=1))
    except spillway.BudgetError as error:
        least = error.smallest
    for budget in (least, (least + plain) // 2):
        region = spillway.offload(budget=budget, recompute=False)
        for _ in range(3):
            gradient, peak = twice(region)
            assert peak <= budget, (peak, budget)
            assert same_bits(gradient, expected)
