# SPDX-License-Identifier: Apache-2.0
"""Budgets that a step exceeded: the error, the warning, and when they are reported."""

from __future__ import annotations

import dataclasses
import os
import sys
import warnings
from typing import TYPE_CHECKING, Any

from spillway._living import living
from spillway._load import glue
from spillway._memory_breakdown import MemoryBreakdown
from spillway._operator_need import OperatorNeed, largest_need
from spillway.model_state import ModelState, state_by_class
from spillway.report.sizes import size
from spillway.settings import setting_of

if TYPE_CHECKING:
    import torch

__all__ = [
    "BudgetError",
    "error_of",
    "level_of_program",
    "optimizers_to_step",
    "raise_if_missed",
    "reported_excess",
    "say_lower_bound",
    "warn",
]

#: By device: reserved bytes beyond a job's budget, as far as an error or a warning had them.
reported_excess: dict[int, int] = {}


@dataclasses.dataclass(eq=False, repr=False)
class BudgetError(RuntimeError):
    """A step exceeded its budget although everything that can leave the GPU had left, or because no more host
    memory could be pinned for it.

    The step has completed beyond the budget, because the GPU had room: parameters, gradients and optimizer
    states are those of a whole step.

    Attributes:
        device: the GPU.
        budget: the requested budget in bytes.
        smallest: a budget that this step would have fit, in bytes: from 32 MiB on what Spillway's allocator
            reserves, otherwise what is allocated. It includes the states that an optimizer made in the step,
            but not gradients that are kept for the next one.
        lower_bound: whether later steps may need more than `smallest`: this step was not followed to the end
            of its optimizer's step, nor was one that began with as many bytes allocated.
        begin: bytes that were allocated when the step saved its first tensor: parameters, gradients and
            optimizer states, mostly. They leave the GPU only in a job with a budget.
        step: the number of the step in this process, from 1.
        shape: the shape of the first tensor that the step saved for backward, such as ``"[8, 1024]"``.
        breakdown: `smallest` by class of memory, or None if it is unknown.
        capacity: the GPU's memory in bytes, or 0 if it is unknown.
        host_memory_short: whether activations or model state stayed on the GPU because no host memory could
            be pinned for them.
        operator: in a job with a budget, the allocation that needed the most, with its operator and that
            operator's tensors; else None. ``smallest`` has room for it.
        kept: bytes of model state that ``spillway.memory.keep_on_device`` kept on the GPUs.
        keeps_model_state: whether model state did not leave the GPU because of ``--keep-model-state``.
    """

    device: int
    budget: int
    smallest: int
    lower_bound: bool = False
    begin: int = 0
    step: int = 0
    shape: str = ""
    breakdown: MemoryBreakdown | None = None
    capacity: int = 0
    host_memory_short: bool = False
    operator: OperatorNeed | None = None
    kept: int = 0
    keeps_model_state: bool = False

    def __post_init__(self) -> None:
        self.args = tuple(getattr(self, each.name) for each in dataclasses.fields(self))  # for copies

    def __str__(self) -> str:
        exceed = '--over-budget warn (over_budget="warn") to exceed the budget'
        return f"{self._too_small()}. {self._advice(exceed)}."

    def warning(self) -> str:
        """The text of a warning: the error's, without the advice to be warned only."""
        return f"{self._too_small()}. {self._advice()}."

    def _too_small(self) -> str:
        least = "at least " if self.lower_bound else ""
        bound = ""
        if least:
            bound = (
                ". This is a lower bound: an optimizer's step, and the states that it keeps, may need more"
            )
        why = "although all of its activations were offloaded or recomputed"
        if self.host_memory_short:
            what = "its activations" if self.operator is None else "activations and model state"
            why = f"because no more host memory could be pinned for {what}"
        elif self.operator is not None:
            why = "although everything else had left the GPU"
        return (
            f"budget {self._budget()} is too small: {self._which()} needs {least}"
            f"{self._need()} on GPU {self.device}, {why}{self._operator()}{bound}"
        )

    def _operator(self) -> str:
        return "" if self.operator is None else f". {self.operator}"

    def _advice(self, *others: str) -> str:
        """The alternatives, as an imperative; ``others`` come last."""
        ways = ["a larger limit of pinned host memory"] * self.host_memory_short
        ways += ["no --keep-model-state, so that model state leaves too"] * self.keeps_model_state
        if self.kept:
            ways.append(f"less of spillway.memory.keep_on_device, which keeps {size(self.kept)}")
        ways += ["a smaller batch", "a shorter sequence"]
        if not self.capacity or self.smallest <= self.capacity:
            budget = setting_of(self.smallest)
            more = " or more" if self.lower_bound else ""
            ways.append(f'--budget {budget}{more} (budget="{budget}")')
        ways += others
        last = ways.pop()
        return f"Use {', '.join(ways)}{',' if len(ways) > 1 else ''} or {last}"

    def excess(self) -> str:
        """The text where later steps may meet the budget; `smallest` is what the step needed."""
        return (
            f"budget {self._budget()} was exceeded: {self._which()} needed {self._need()} on GPU "
            f"{self.device}{self._operator()}. Later steps offload more where they can. If no step may "
            "exceed it, use a larger budget, a smaller batch or a shorter sequence."
        )

    def _which(self) -> str:
        return f"step {self.step}" + (f" (first saved tensor: {self.shape})" if self.shape else "")

    def _budget(self) -> str:
        text = size(self.budget)
        return f"{self.budget} bytes" if text == size(self.smallest) else text

    def _need(self) -> str:
        need = size(self.smallest)
        if need == size(self.budget):  # the sizes differ by less than their text shows
            need = f"{self.smallest} bytes"
        if self.breakdown is None:
            return need
        begin = ""
        if self.breakdown.parameters is None:
            begin = f"; {size(self.begin)} were allocated before its first activation"
        return f"{need} ({self.breakdown}{begin})"


def error_of(missed: tuple[Any, ...]) -> BudgetError:
    """With the classes of memory as they are now. ``missed``: the first value of take_budget_miss()."""
    import torch
    from torch.optim import Optimizer

    device, budget, smallest, lower_bound, begin, step, shape, activations, host_memory_short = missed
    need = largest_need(device) if glue().job_budget(device) else None
    state = state_by_class(living(Optimizer)).get(device)
    reasons = glue().stats()["model_state"]["resident_reasons"]
    if need is not None:
        reported_excess[device] = need.needed
        smallest = max(smallest, need.budget)
        host_memory_short |= "no_host_memory" in reasons
        # At that time; since then some of it has left, or was fetched.
        of = need.resident
        state = ModelState(of["parameters"] + of["buffers"], of["gradients"], of["optimizer_states"])
    known = {
        "device": device,
        "budget": budget,
        "smallest": smallest,
        "lower_bound": lower_bound,
        "begin": begin,
        "step": step,
        "shape": shape,
        "breakdown": MemoryBreakdown.of(smallest, state, activations),
        "capacity": torch.cuda.get_device_properties(device).total_memory,
        "host_memory_short": host_memory_short,
        "operator": need,
        "kept": reasons.get("kept_on_device", {"bytes": 0})["bytes"],
        "keeps_model_state": state is not None and os.environ.get("SPILLWAY_KEEP_MODEL_STATE") == "1",
    }
    return BudgetError(**known)


def warn(missed: tuple[Any, ...], adapts: bool) -> None:
    """Warns of a step that exceeded its budget.

    ``missed``: as for error_of(). ``adapts``: later steps of its shape may meet the budget.
    """
    error = error_of(missed)
    text = error.excess() if adapts else error.warning()
    warnings.warn(text, RuntimeWarning, stacklevel=level_of_program())


def level_of_program() -> int:
    """The caller's stacklevel for a warning at the innermost line outside of Spillway and PyTorch; the
    caller's own in a thread of autograd, which has no such line."""
    import torch

    libraries = tuple(os.path.dirname(each) + os.sep for each in (__file__, torch.__file__))
    frame, level = sys._getframe(1), 1
    while frame.f_code.co_filename.startswith(libraries):
        if frame.f_back is None:
            return 1
        frame, level = frame.f_back, level + 1
    return level


def raise_if_missed(entered: Any = None, optimized: bool = False) -> None:
    """Raises BudgetError, or warns, if a step has exceeded its budget and this was not reported yet.

    ``entered``: the budget whose region begins. A step that exceeded another budget is forgotten then,
    because its job has ended. With micro-batches the report waits for the optimizer's step. ``optimized``: an
    optimizer's step has ended.
    """
    if entered is not None and glue().budget_missed() and optimizers_to_step():
        return
    taken = glue().take_budget_miss(entered)
    if taken is None:
        return
    missed, only_warns, is_first, adapts = taken
    if is_first or _others_may_need_more():
        missed = (*missed[:3], True, *missed[4:])  # a lower bound
    # The next step has the optimizer's states, and names a budget for all steps.
    if only_warns or (optimized and is_first):
        return warn(missed, adapts)
    raise error_of(missed)


def optimizers_to_step() -> int:
    """How many optimizers of ``torch.optim`` have gradients to step with."""
    from torch.optim import Optimizer

    return sum(map(_has_gradients, living(Optimizer)))


def _has_gradients(optimizer: torch.optim.Optimizer) -> bool:
    groups = vars(optimizer).get("param_groups", ())  # which one that is being made has not
    return any(each.grad is not None for group in groups for each in group.get("params", ()))


def _others_may_need_more() -> bool:
    """Whether later steps may need more than the one that exceeded the budget: states of other optimizers,
    and buffers that DistributedDataParallel allocates in its second step."""
    import torch

    distributed = torch.distributed
    return (distributed.is_available() and distributed.is_initialized()) or optimizers_to_step() > 1


def say_lower_bound(error: BaseException | None) -> None:
    """Adds a lower bound of the budget to an out-of-memory error of PyTorch's allocator."""
    import torch

    if not isinstance(error, torch.OutOfMemoryError):
        return
    bound = glue().take_end_of_memory()
    if bound:
        error.args = (f"{error} ({bound})",)
