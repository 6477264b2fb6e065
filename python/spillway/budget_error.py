# SPDX-License-Identifier: Apache-2.0
"""Budgets that a step exceeded: the error, the warning, and when they are reported."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from spillway._living import living
from spillway._load import glue

if TYPE_CHECKING:
    import torch

__all__ = ["BudgetError", "optimizers_to_step", "raise_where_missed", "say_lower_bound", "warn"]


class BudgetError(RuntimeError):
    """A step exceeded its budget although all of its activations were offloaded or recomputed.

    The step has run to its end, beyond the budget, where the GPU had room: parameters, gradients and
    optimizer states are those of a whole step.

    Attributes:
        device: the GPU.
        budget: what was asked for, in bytes.
        smallest: a budget that this step would have fit, in bytes: from 32 MiB on what Spillway's allocator
            reserves, otherwise what is allocated. It includes the states that an optimizer made in the step,
            but not gradients that are kept for the next one.
        lower_bound: whether later steps may need more than `smallest`: this step was not followed to the end
            of its optimizer's step, nor was one that began with as many bytes allocated.
        begin: bytes that were allocated when the step saved its first tensor: parameters, gradients and
            optimizer states, mostly, which Spillway does not offload.
        step: the number of the step in this process, from 1.
        shape: the shape of the first tensor that the step saved for backward, such as ``"[8, 1024]"``.
    """

    def __init__(
        self,
        device: int,
        budget: int,
        smallest: int,
        lower_bound: bool = False,
        begin: int = 0,
        step: int = 0,
        shape: str = "",
    ) -> None:
        super().__init__(device, budget, smallest, lower_bound, begin, step, shape)
        self.device = device
        self.budget = budget
        self.smallest = smallest
        self.lower_bound = lower_bound
        self.begin = begin
        self.step = step
        self.shape = shape

    def __str__(self) -> str:
        need, least = f"needs {_mib(self.smallest)}", ""
        if self.lower_bound:
            least = "at least "
            need = (
                f"needs at least {_mib(self.smallest)} (a lower bound: an optimizer's step, and the states "
                "that it keeps, may need more)"
            )
        return (
            f"budget={self.budget} ({_mib(self.budget)}) is too small on GPU {self.device}: with all of its "
            f"activations offloaded or recomputed, {self._which()} {need}, {_mib(self.begin)} of which were "
            "allocated before it saved its first activation (parameters, gradients, optimizer states). Use a "
            f"budget of {least}{self.smallest} bytes, a smaller batch or a shorter sequence, or "
            "over_budget='warn' (--over-budget warn) to go on beyond the budget"
        )

    def excess(self) -> str:
        """The text where later steps may meet the budget; `smallest` is what the step needed."""
        return (
            f"budget={self.budget} ({_mib(self.budget)}) was exceeded on GPU {self.device}: {self._which()} "
            f"needed {_mib(self.smallest)}. Later steps offload more where they can. Use a larger budget, a "
            "smaller batch or a shorter sequence where no step may exceed it"
        )

    def _which(self) -> str:
        return f"step {self.step}" + (f" (first saved tensor: {self.shape})" if self.shape else "")


def _mib(size: int) -> str:
    return f"{size / 2**20:,.1f} MiB" if size < 2**30 else f"{size / 2**30:,.2f} GiB"


def warn(missed: tuple[Any, ...], adapts: bool) -> None:
    """Warns of a step that exceeded its budget.

    ``missed``: the arguments of a BudgetError. ``adapts``: later steps of its shape may meet the budget.
    """
    error = BudgetError(*missed)
    text = error.excess() if adapts else str(error)
    warnings.warn(text, RuntimeWarning, stacklevel=3)


def raise_where_missed(entered: Any = None, optimized: bool = False) -> None:
    """Raises BudgetError, or warns, where a step has exceeded its budget and that was not reported yet.

    Where the budget ``entered`` begins, a miss of another one is forgotten: that was a job that went no
    further. One of the same budget waits for the optimizer's step that is to come, as with micro-batches.
    ``optimized``: an optimizer's step has ended.
    """
    if entered is not None and glue().budget_missed() and optimizers_to_step():
        return
    missed = glue().take_budget_miss(entered)
    if missed is None:
        return
    (device, budget, smallest, lower_bound, begin, step, shape), only_warns, is_first, adapts = missed
    # The next step has the optimizer's states, and names a budget for all steps.
    only_warns = only_warns or (optimized and is_first)
    lower_bound = lower_bound or is_first or _others_may_need_more()
    arguments = (device, budget, smallest, lower_bound, begin, step, shape)
    if only_warns:
        return warn(arguments, adapts)
    raise BudgetError(*arguments)


def optimizers_to_step() -> int:
    """How many optimizers of ``torch.optim`` have gradients to step with."""
    from torch.optim import Optimizer

    return sum(map(_has_gradients, living(Optimizer)))


def _has_gradients(optimizer: torch.optim.Optimizer) -> bool:
    groups = vars(optimizer).get("param_groups", ())  # which one that is being made has not
    return any(each.grad is not None for group in groups for each in group.get("params", ()))


def _others_may_need_more() -> bool:
    """What other optimizers make, and what DistributedDataParallel makes in its second step, a step that
    was missed has not shown."""
    import torch

    distributed = torch.distributed
    return (distributed.is_available() and distributed.is_initialized()) or optimizers_to_step() > 1


def say_lower_bound(error: BaseException | None) -> None:
    """Where PyTorch's allocator ran out of memory: its error says what the budget must be at least."""
    import torch

    if not isinstance(error, torch.OutOfMemoryError):
        return
    bound = glue().take_end_of_memory()
    if bound:
        error.args = (f"{error} ({bound})",)
