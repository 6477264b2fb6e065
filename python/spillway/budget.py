# SPDX-License-Identifier: Apache-2.0
"""Regions that offload and recompute just enough to keep a GPU within a budget."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar, overload

from spillway._arguments import flag, text_or_none
from spillway._load import glue
from spillway._managed_budgets import SMALLEST, manage, optimizers_of
from spillway._plan_file import PlanFile
from spillway._recompute import prepare_recomputation
from spillway._region import Region
from spillway._scope import open_calls
from spillway.budget_error import raise_if_missed, say_lower_bound
from spillway.cpu_offload import end_steps_with_optimizers
from spillway.limits import size_of
from spillway.report.sizes import size
from spillway.settings import size_in_bytes

if TYPE_CHECKING:
    import torch
    from torch.optim import Optimizer

    _Module = TypeVar("_Module", bound=torch.nn.Module)
_Function = TypeVar("_Function", bound=Callable[..., Any])

__all__ = ["BudgetRegion", "offload"]

#: What these regions are planned and counted under, unless they have a tag of their own.
TAG = "budget"


class BudgetRegion(Region):
    """The region that :func:`offload` returns without a model."""

    def __init__(
        self,
        budget: int | float | str | None,
        tag: str | None = None,
        recompute: bool = True,
        time_limit: float | None = None,
        plans: str | os.PathLike[str] | None = None,
        over_budget: str = "error",
    ) -> None:
        super().__init__()
        named = text_or_none("tag", tag)
        self.tag = TAG if named is None else named
        if budget is None and time_limit is None:
            raise TypeError(
                'offload needs a budget (a size such as "20GiB", a share such as "80%", or "auto") or a '
                "time_limit (such as 1.05)"
            )
        self.budget = _budget_of("auto" if budget is None else budget)
        self.time_limit = _time_limit_of(time_limit)
        self.recompute = flag("recompute", recompute)
        if over_budget not in ("error", "warn"):
            raise ValueError(f'over_budget must be "error" or "warn", not {over_budget!r}')
        self.over_budget = over_budget
        self.plans = None if plans is None else PlanFile.of(plans, self.tag)

    def _entry(self) -> Callable[[], int]:
        import torch

        budget = _as_glue_has_it(self.budget, self.time_limit, self.over_budget == "warn")
        raise_if_missed(budget)
        device = torch.cuda.current_device()
        total = torch.cuda.get_device_properties(device).total_memory
        if isinstance(self.budget, int) and self.budget > total:
            raise ValueError(
                f"budget must be at most the memory of GPU {device}, {size(total)} ({total} bytes), "
                f"not {size(self.budget)} ({self.budget} bytes)"
            )
        end_steps_with_optimizers()
        glue().take_end_of_memory()  # of a backward pass before
        if self.recompute:
            prepare_recomputation()
        return functools.partial(
            glue().enter_region,
            1.0,
            self.tag,
            prefetch=False,
            names_memory=False,
            budget=budget,
            recompute=self.recompute,
        )

    def _entered(self) -> BudgetRegion:
        if self.plans is not None:
            self.plans.read()
            self.plans.write()
        return self

    def _left(self, error: BaseException | None) -> None:
        say_lower_bound(error)

    def _before(self, module: torch.nn.Module, inputs: Any) -> None:
        calls = open_calls(__name__)
        calls.end_left(module)
        calls.begin(module, self._opening())
        try:
            self._entered()
        except BaseException:
            calls.end(module)
            raise

    def _after(self, module: torch.nn.Module, inputs: Any, output: Any) -> None:
        open_calls(__name__).end(module)
        self._left(sys.exc_info()[1])  # of a forward pass that failed

    def __repr__(self) -> str:
        limit = "" if self.time_limit is None else f", time_limit={self.time_limit}"
        return f"offload(budget={self.budget!r}, tag={self.tag!r}, recompute={self.recompute}{limit})"


def _budget_of(given: Any) -> int | float | str:
    """Bytes, a share of the GPU above 0, or "auto". Errors: TypeError, ValueError."""
    if isinstance(given, str) and given.endswith("%"):
        try:
            given = float(given[:-1]) / 100
        except ValueError:
            raise _no_budget(given) from None
    if isinstance(given, float):
        if not 0 < given <= 1:
            raise ValueError(
                f"budget must be a share of the GPU above 0 and at most 1, or an integer number of bytes, "
                f"not {given!r}"
            )
        return given
    if isinstance(given, str) and given.replace(".", "", 1).isdigit():
        raise ValueError(
            f'budget must have a unit, as in "{given}GiB", or be an integer number of bytes, not {given!r}'
        )
    if isinstance(given, str) and given != "auto" and size_in_bytes(given) is None:
        raise _no_budget(given)
    return given if given == "auto" else size_of("budget", given)


def _no_budget(text: str) -> ValueError:
    return ValueError(
        f'budget must be a size such as "20GiB", a share such as "80%", or "auto", not {text!r}'
    )


def _time_limit_of(given: Any) -> float | None:
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise TypeError(f"time_limit must be a number such as 1.05, or None, not {given!r}")
    if not 1 <= given <= 100:
        raise ValueError(f"time_limit must be from 1 to 100 times the plain step's time, not {given!r}")
    return float(given)


def _as_glue_has_it(budget: int | float | str, time_limit: float | None, warns: bool) -> Any:
    make = glue().Budget
    given: dict[str, Any] = {"slowdown": time_limit or 0.0, "warns": warns}
    if budget == "auto":
        return make(share=make.AUTO, rest=True, **given)
    if isinstance(budget, float):
        return make(share=budget, **given)
    return make(bytes=int(budget), **given)


def _manage_model_state(model: torch.nn.Module, region: BudgetRegion, optimizers: list[Optimizer]) -> None:
    """As far as the allocator can hold the budget."""
    if not _holds_model_state(region) or not glue().stats()["uses_spillway"]:
        return
    end_steps_with_optimizers()
    budget = _as_glue_has_it(region.budget, region.time_limit, region.over_budget == "warn")
    manage(model, budget, optimizers)


def _holds_model_state(region: BudgetRegion) -> bool:
    """Whether its budget can be that of model state too."""
    return region.budget is not None and not (isinstance(region.budget, int) and region.budget < SMALLEST)


@functools.cache
def _keep_hooks_out_of_graphs() -> None:
    """The compiler does not trace the hooks of a module that is compiled: they run beside its graphs."""
    import torch

    hooks: Any = BudgetRegion
    hooks._before, hooks._after = map(torch.compiler.disable, (hooks._before, hooks._after))


def _given_again(model: torch.nn.Module, wanted: BudgetRegion) -> bool:
    """Updates the region that the model has already, if any; effective at its next entry."""
    for hook in model._forward_pre_hooks.values():
        region = getattr(hook, "__self__", None)
        if isinstance(region, BudgetRegion):
            region.tag, region.budget, region.recompute = wanted.tag, wanted.budget, wanted.recompute
            region.time_limit, region.plans = wanted.time_limit, wanted.plans
            region.over_budget = wanted.over_budget
            return True
    return False


@overload
def offload(
    model_or_region: None = None,
    *,
    budget: int | float | str | None = None,
    time_limit: float | None = None,
    tag: str | None = None,
    recompute: bool = True,
    plans: str | os.PathLike[str] | None = None,
    over_budget: str = "error",
    optimizer: None = None,
) -> BudgetRegion: ...
@overload
def offload(
    model_or_region: _Module,
    *,
    budget: int | float | str | None = None,
    time_limit: float | None = None,
    tag: str | None = None,
    recompute: bool = True,
    plans: str | os.PathLike[str] | None = None,
    over_budget: str = "error",
    optimizer: Optimizer | Iterable[Optimizer] | None = None,
) -> _Module: ...
@overload
def offload(
    model_or_region: _Function,
    *,
    budget: int | float | str | None = None,
    time_limit: float | None = None,
    tag: str | None = None,
    recompute: bool = True,
    plans: str | os.PathLike[str] | None = None,
    over_budget: str = "error",
    optimizer: None = None,
) -> _Function: ...
def offload(
    model_or_region: Any = None,
    *,
    budget: int | float | str | None = None,
    time_limit: float | None = None,
    tag: str | None = None,
    recompute: bool = True,
    plans: str | os.PathLike[str] | None = None,
    over_budget: str = "error",
    optimizer: Any = None,
) -> Any:
    """Fit a step into `budget` as fast as possible, offloading and recomputing as needed.

    ::

        model = spillway.offload(model, budget="20GiB")   # each forward pass, and the model's state
        with spillway.offload(budget="20GiB"):            # or around a part of the program
            loss = model(batch)

    Spillway records the first step of each sequence of shapes, in which it recomputes or offloads all that it
    can. Later steps follow a plan made from the recorded sizes and times. The plan keeps, offloads or
    recomputes (:func:`spillway.recompute`) each storage, so that the peak is within the budget and the
    predicted time is minimal. Offloaded storages are prefetched as early as memory allows.
    :func:`spillway.explain` shows the plan, and how close it is to the best possible one.

    Given a model, with Spillway's allocator and at least 32 MiB, the budget also covers its *model state*:
    its parameters, buffers, gradients, and their states in optimizers of ``torch.optim``. These leave the GPU
    when the budget has no room, and are fetched when an operator uses them. The budget is then held in the
    whole process, as long as the model exists: the first step keeps what fits, and evaluations and optimizer
    steps are covered too. Of several models' budgets the one given last is held. Without a model only
    activations are offloaded; so with ``time_limit`` alone.

    With Spillway's allocator, a budget of 32 MiB or more limits reserved memory
    (``torch.cuda.max_memory_reserved``). A smaller budget, and any budget with PyTorch's allocator, limits
    allocated memory (``torch.cuda.max_memory_allocated``). It applies to each GPU separately, from the first
    saved tensor of a step to the end of its backward pass. If an optimizer of ``torch.optim`` or
    ``spillway.step`` ends the step before the next entry, it applies until then.

    Args:
        model_or_region: a module, whose forward passes then run in the region, and which is returned (a
            second call for it replaces its budget and tag); or a function to decorate; or None, to return the
            region itself, a context manager and decorator.
        budget: bytes, or text such as ``"20GiB"``; a share of the GPU's memory such as ``0.8`` or ``"80%"``;
            or ``"auto"``, 95 % of the GPU memory that is free or reserved by this process when its first
                step with a budget begins.
        time_limit: minimizes memory instead of time. The predicted step time is at most this multiple of the
            time with everything kept, such as ``1.05``. `budget` then defaults to ``"auto"`` and takes
            precedence.
        recompute: whether storages may be recomputed; with False they are only offloaded.
        tag: a name under which the region is planned and counted. Regions that are entered in the same step
            must have the same tag and the same budget, which they share. Give models that train in separate
            steps separate tags. Default: ``"budget"``.
        plans: a file that saves the recorded profile, so that the next run of the same job on such a GPU
            follows a plan from its first step. Created if missing.
        over_budget: what happens when a step needs more than `budget` although all of its activations are
            offloaded: ``"error"`` raises BudgetError at its end, ``"warn"`` warns and continues. A step that
            exceeded it and was not completely offloaded, such as the first one of its shape, causes a
            RuntimeWarning. ``budget="auto"`` never raises; such a job fails only when the GPU is out of
            memory.
        optimizer: an optimizer of the model, or a list of them, whose states may leave the GPU from now on.
            Other optimizers of its parameters are found in their first step. A state that another program
            part references, and a step that needs all parameters at once (LBFGS), still work.

    Raises:
        RuntimeError: `optimizer` is given, and Spillway's allocator is not in use.
        TypeError, ValueError: `budget` is no size or share, or not above 0; at the first entry, it is more
            than the GPU has, the step has another budget or a budget under another tag, or `plans` is a file
            that was not written by such a job. Another argument has an invalid value.
        BudgetError: a step exceeded its budget although all of its activations were offloaded or recomputed,
            or because no more host memory could be pinned. It is raised by the optimizer's ``step`` if a
            ``torch.optim`` optimizer has gradients, otherwise by ``backward``; or by ``spillway.step`` or the
            next entry, whichever comes first. The first optimizer step only warns.
    """
    import torch

    region = BudgetRegion(budget, tag, recompute, time_limit, plans, over_budget)
    optimizers = optimizers_of(model_or_region, optimizer)
    if optimizers and not _holds_model_state(region):
        raise ValueError(
            "optimizer needs a budget of at least 32MiB, because smaller ones, and time_limit alone, limit "
            "only activations. Give such a budget, or no optimizer."
        )
    if model_or_region is None:
        return region
    if isinstance(model_or_region, torch.nn.Module):
        if budget is not None:
            _manage_model_state(model_or_region, region, optimizers)
        if _given_again(model_or_region, region):
            return model_or_region
        _keep_hooks_out_of_graphs()
        model_or_region.register_forward_pre_hook(region._before, prepend=True)
        model_or_region.register_forward_hook(region._after, always_call=True)
        return model_or_region
    if not callable(model_or_region):
        raise TypeError(f"model_or_region must be an nn.Module, a function or None, not {model_or_region!r}")
    return region(model_or_region)
