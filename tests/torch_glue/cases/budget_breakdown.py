# SPDX-License-Identifier: Apache-2.0
"""What a BudgetError reports: the need by class of memory, in bytes."""

import gc
import pickle
import sys
import warnings

import spillway
import torch

from cases import case
from cases.budget_optimizers import Training, end_missed
from cases.budgets import WIDTHS, step


def sizes_of(tensors):
    return sum(each.untyped_storage().nbytes() for each in tensors if each.is_cuda)


def saved_bytes(training, rows):
    """What a plain step of the training saves, without parameters: the largest storage, and all."""
    sizes = {}

    def pack(tensor):
        if not tensor.is_leaf or not tensor.requires_grad:
            sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        x = torch.randn(rows, 256, device="cuda")
        for layer in training.model.model:  # without the region
            x = layer(x)
        x.square().sum()
    return max(sizes.values()), sum(sizes.values())


def error_of(budget, **options):
    """The training, and the error of its first step that raises one."""
    spillway.step()
    training = Training(budget, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of the step that makes the optimizer's states
        for _ in range(3):
            _, error, _ = training.step()
            if error is not None:
                return training, error
    raise AssertionError("no step raised")


@case
def the_classes_of_a_budget_error_are_the_bytes_of_the_model():
    training, error = error_of(1, rows=4096, keeps_gradients=True, freezes=True)
    parameters = list(training.model.parameters())
    states = [state for of in training.optimizer.state.values() for state in of.values()]
    found = error.breakdown
    assert found.parameters == sizes_of(parameters), found
    gradients = [each.grad for each in parameters if each.grad is not None]
    assert len(gradients) == len(parameters) - 1
    assert found.gradients == sizes_of(gradients) < found.parameters, found
    assert found.optimizer_states == sizes_of(states) == 2 * found.gradients, found
    each, together = saved_bytes(training, rows=4096)
    assert each <= found.activations <= together, (found, each, together)
    assert found.other >= 0 and found.total == error.smallest, (found, error.smallest)


@case
def a_storage_is_in_one_class_and_only_on_its_device():
    shared = torch.zeros(1024, device="cuda")
    views = [torch.nn.Parameter(shared[:512]), torch.nn.Parameter(shared[512:])]
    host = torch.nn.Parameter(torch.zeros(1024))
    for each in (*views, host):
        each.grad = torch.zeros_like(each)
    optimizers = [torch.optim.SGD([*views, host], lr=1), torch.optim.SGD(views[:1], lr=1)]
    being_made = torch.optim.Adam.__new__(torch.optim.Adam)
    from spillway.model_state import state_by_class

    assert state_by_class([*optimizers, being_made]) == {0: (4096, 4096, 0)}


@case
def without_an_optimizer_the_classes_of_the_model_are_unknown():
    gc.collect()  # optimizers of other cases
    try:
        step(spillway.offload(budget=1, recompute=False))
    except spillway.BudgetError as error:
        found = error.breakdown
        assert (found.parameters, found.gradients, found.optimizer_states) == (None, None, None), found
        assert 64 * 4 * min(WIDTHS) <= found.activations <= 64 * 4 * sum(WIDTHS), found
        assert found.activations + found.other == found.total == error.smallest, (found, error.smallest)
        assert error.begin > 0 and error.capacity == torch.cuda.get_device_properties(0).total_memory
    else:
        raise AssertionError("a budget of 1 byte was met")
    end_missed()


@case
def a_budget_error_can_be_pickled_with_its_fields():
    _, error = error_of(1)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is spillway.BudgetError and vars(copy) == vars(error), vars(copy)
    assert str(copy) == str(error)


@case
def the_suggested_budget_is_enough_and_hardly_more():
    from spillway.limits import size_of
    from spillway.settings import setting_of

    for size in (1, 1023, 5000, 2**20, 123_456_789, 2**30 + 1, 82_141_000_000, 3 * 2**40 + 7):
        suggested = size_of("budget", setting_of(size))
        assert size <= suggested <= size + size // 50, (size, setting_of(size))


@case
def sizes_that_look_the_same_in_a_budget_error_are_bytes():
    near = spillway.BudgetError(0, budget=2**30, smallest=2**30 + 1)
    assert str(2**30) in str(near) and str(2**30 + 1) in str(near), near
    assert str(2**30) in near.excess() and str(2**30 + 1) in near.excess(), near.excess()
    far = spillway.BudgetError(0, budget=2**30, smallest=2**31)
    assert str(2**30) not in str(far) and str(2**31) not in str(far), far


@case
def a_warning_shows_the_line_of_the_program():
    spillway.step()
    training = Training()
    spillway.offload(training.model, budget=1, tag="warned", over_budget="warn")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            training.step()
    found = [each for each in caught if "budget 1" in str(each.message)]
    assert found
    for each in found:
        assert each.filename == sys.modules[Training.__module__].__file__, each
        with open(each.filename) as source:
            assert "self.optimizer.step()" in source.read().splitlines()[each.lineno - 1]
