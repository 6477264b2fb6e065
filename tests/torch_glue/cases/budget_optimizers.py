# SPDX-License-Identifier: Apache-2.0
"""Budgets of models whose optimizers need more than their backward passes: what errors name, and when."""

import contextlib

import spillway
import torch

from cases import case
from cases.measure import same_bits


class InRegion(torch.nn.Module):
    """A model whose activations are within a budget, but not its states."""

    def __init__(self, model, region):
        super().__init__()
        self.model = model
        self.region = region

    def forward(self, x):
        with self.region:
            return self.model(x)


class Training:
    """Steps of a small model whose optimizer needs more than its backward pass."""

    def __init__(self, budget=None, rows=32, keeps_gradients=False, freezes=False):
        torch.manual_seed(0)
        layers = [torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.GELU()) for _ in range(6)]
        self.model = torch.nn.Sequential(*layers).cuda()
        self.model[0][0].bias.requires_grad_(not freezes)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, foreach=True)
        self.rows = rows
        self.keeps_gradients = keeps_gradients
        if budget is not None:
            self.model = InRegion(self.model, spillway.offload(budget=budget, tag="training"))

    def step(self):
        """The peak, and the error and where it came from."""
        torch.manual_seed(1)
        x = torch.randn(self.rows, 256, device="cuda")
        torch.cuda.reset_peak_memory_stats()
        error, place = None, "backward"
        try:
            self.model(x).square().sum().backward()
            place = "optimizer"
            self.optimizer.step()
        except spillway.BudgetError as raised:
            error = raised.with_traceback(None)  # which holds this frame
        self.optimizer.zero_grad(set_to_none=not self.keeps_gradients)
        return torch.cuda.max_memory_allocated(), error, place if error else None

    def bits(self):
        return [p.detach().cpu() for p in self.model.parameters()]


def plain_training(steps, rows=32):
    training = Training(rows=rows)
    peaks = [training.step()[0] for _ in range(steps)]
    return peaks, training.bits()


@case
def what_the_optimizer_needs_counts_in_the_budget():
    plain_training(1)
    peaks, expected = plain_training(4)
    spillway.step()
    training = Training(peaks[-1] - 1024)
    places, bounds, smallest = [], [], 0
    for _ in range(4):
        _, error, place = training.step()
        places.append(place)
        if error is not None:
            bounds.append(error.lower_bound)
            smallest = error.smallest
            assert error.step > 0 and "[32, 256]" in error.shape, (error.step, error.shape)
            assert 0 < error.begin < error.smallest, error
    # The first step has not made the optimizer's states yet.
    assert places == [None] + ["optimizer"] * 3, places
    assert bounds == [False] * 3, bounds
    assert all(same_bits(a, b) for a, b in zip(training.bits(), expected, strict=True))
    del training
    spillway.step()
    training = Training(smallest)
    for _ in range(4):
        peak, error, _ = training.step()
        assert error is None and peak <= smallest, (error, peak, smallest)


def trained_as_errors_say(keeps_gradients=False):
    """Trains as a user who begins with too little, and again with the budget that each error names. Returns
    the errors, where each came from, and the run that had none."""
    budget, errors = 1, []
    for _ in range(10):
        spillway.step()
        training = Training(budget, rows=4096, keeps_gradients=keeps_gradients)
        found = []
        while len(found) < 5 and (not found or found[-1][1] is None):
            found.append(training.step())
        if found[-1][1] is None:
            return errors, [peak for peak, _, _ in found], budget, training.bits()
        errors.append((len(found), *found[-1][1:]))
        budget = found[-1][1].smallest
        del training
    raise AssertionError(errors)


@case
def the_first_error_names_a_budget_that_is_met():
    plain_training(1, rows=4096)
    _, expected = plain_training(5, rows=4096)
    errors, peaks, budget, bits = trained_as_errors_say()
    assert [(steps, place) for steps, _, place in errors] == [(2, "optimizer")], errors
    assert not errors[0][1].lower_bound, errors
    assert all(peak <= budget for peak in peaks), (peaks, budget)
    assert all(same_bits(a, b) for a, b in zip(bits, expected, strict=True))


def end_missed():
    """Ends a step that may raise."""
    with contextlib.suppress(spillway.BudgetError):
        spillway.step()


@case
def with_another_optimizer_the_smallest_is_a_lower_bound():
    other = torch.ones(8, device="cuda", requires_grad=True)
    others = torch.optim.SGD([other], lr=1)
    being_made = torch.optim.Adam.__new__(torch.optim.Adam)  # which has no parameters yet
    for has_gradient in (False, True):
        training = Training(1)
        other.grad = torch.ones_like(other) if has_gradient else None
        training.step()
        _, error, place = training.step()
        assert (place, error.lower_bound) == ("optimizer", has_gradient), (place, error)
        del training
    assert others.param_groups and not vars(being_made)


@case
def micro_batches_are_reported_by_the_optimizers_step():
    training = Training(1)
    training.step()
    for _ in range(3):
        training.model(torch.randn(32, 256, device="cuda")).square().sum().backward()
    try:
        training.optimizer.step()
    except spillway.BudgetError as error:
        assert error.smallest > 1 and not error.lower_bound, error
    else:
        raise AssertionError("nothing was reported")
    training.optimizer.zero_grad()
    end_missed()


@case
def a_missed_step_that_no_optimizer_is_to_end_is_reported_at_the_next_entry():
    training = Training(1)
    loss = training.model(torch.randn(32, 256, device="cuda")).square().sum()
    loss.backward(retain_graph=True)
    training.optimizer.zero_grad()
    del loss
    try:
        training.model(torch.randn(32, 256, device="cuda"))
    except spillway.BudgetError as error:
        assert error.lower_bound, error
    else:
        raise AssertionError("nothing was reported")
    end_missed()


@case
def a_miss_of_an_abandoned_job_is_not_reported_to_the_next():
    training = Training(1)
    training.model(torch.randn(32, 256, device="cuda")).square().sum().backward()
    training.optimizer.zero_grad()
    del training  # without a call of any other function
    training = Training("80%")
    assert training.step()[1] is None
    spillway.step()


@case
def gradients_that_stay_are_in_the_error():
    errors, peaks, budget, _ = trained_as_errors_say(keeps_gradients=True)
    assert [(steps, place) for steps, _, place in errors] == [(2, "optimizer")], errors
    assert all(peak <= budget for peak in peaks), (peaks, budget)
