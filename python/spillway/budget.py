# SPDX-License-Identifier: Apache-2.0
"""Regions that move as little as keeps a GPU within a budget."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, overload

from spillway._arguments import flag, text_or_none
from spillway._load import glue
from spillway._region import Region
from spillway.cpu_offload import end_steps_with_optimizers
from spillway.limits import size_of
from spillway.rebuild import note_fused_steps

if TYPE_CHECKING:
    import torch

    _Module = TypeVar("_Module", bound=torch.nn.Module)
_Function = TypeVar("_Function", bound=Callable[..., Any])

__all__ = ["BudgetError", "BudgetRegion", "offload", "raise_where_missed"]

#: What these regions are planned and counted under, unless they have a tag of their own.
TAG = "budget"


class BudgetError(RuntimeError):
    """A step needed more GPU memory than its budget although everything moved that could.

    ``device`` is the GPU, ``budget`` what was asked for, ``smallest`` what would have done, in bytes. It is
    only a ``lower_bound`` until a step that began with as many bytes live has been followed to the end of its
    optimizer's step: an optimizer may need more than the backward pass, and its states stay.
    """

    def __init__(self, device: int, budget: int, smallest: int, lower_bound: bool = False) -> None:
        super().__init__(device, budget, smallest, lower_bound)
        self.device = device
        self.budget = budget
        self.smallest = smallest
        self.lower_bound = lower_bound

    def __str__(self) -> str:
        smallest = (
            "a lower bound of the budget: an optimizer's step, and the states that it keeps, may need more"
            if self.lower_bound
            else "which is the smallest budget that would do"
        )
        return (
            f"budget={self.budget} cannot be met on GPU {self.device} by moving activations: with all "
            f"of them moved the step needed {self.smallest} bytes, {smallest}"
        )


def raise_where_missed() -> None:
    """Raises BudgetError where a step has missed its budget, and nobody has been told."""
    missed = glue().take_budget_miss()
    if missed is not None:
        raise BudgetError(*missed)


class BudgetRegion(Region):
    """What :func:`offload` gives without a model."""

    def __init__(self, budget: int | str, tag: str | None = None, rebuild: bool = True) -> None:
        super().__init__()
        self.tag = TAG if text_or_none("tag", tag) is None else tag
        self.budget = size_of("budget", budget)
        self.rebuild = flag("rebuild", rebuild)

    def _enter(self) -> int:
        import torch

        raise_where_missed()
        device = torch.cuda.current_device()
        total = torch.cuda.get_device_properties(device).total_memory
        if self.budget > total:
            raise ValueError(
                f"budget must be above 0 and at most {total} bytes, what GPU {device} has, "
                f"not {self.budget} bytes"
            )
        end_steps_with_optimizers()
        glue().take_end_of_memory()  # of a backward pass before
        if self.rebuild:
            note_fused_steps()
        return glue().enter_region(
            1.0, self.tag, prefetch=False, names_memory=False, budget=self.budget, rebuild=self.rebuild
        )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        _say_lower_bound(error)

    def _before(self, module: torch.nn.Module, inputs: Any) -> None:
        self.__enter__()

    def _after(self, module: torch.nn.Module, inputs: Any, output: Any) -> None:
        if self.is_open:  # another hook may have failed before _before ran
            self.__exit__(*sys.exc_info())  # of a forward pass that failed

    def __repr__(self) -> str:
        return f"offload(budget={self.budget}, tag={self.tag!r}, rebuild={self.rebuild})"


def _say_lower_bound(error: BaseException | None) -> None:
    """Where PyTorch's allocator ran out of memory: its error says what the budget must be at least."""
    import torch

    if not isinstance(error, torch.OutOfMemoryError):
        return
    bound = glue().take_end_of_memory()
    if bound:
        error.args = (f"{error} ({bound})",)


def _given_again(model: torch.nn.Module, wanted: BudgetRegion) -> bool:
    """Where the model has a region already: that one is what is wanted from its next entry on."""
    for hook in model._forward_pre_hooks.values():
        region = getattr(hook, "__self__", None)
        if isinstance(region, BudgetRegion):
            region.tag, region.budget, region.rebuild = wanted.tag, wanted.budget, wanted.rebuild
            return True
    return False


@overload
def offload(
    model_or_region: None = None, *, budget: int | str, tag: str | None = None, rebuild: bool = True
) -> BudgetRegion: ...
@overload
def offload(
    model_or_region: _Module, *, budget: int | str, tag: str | None = None, rebuild: bool = True
) -> _Module: ...
@overload
def offload(
    model_or_region: _Function, *, budget: int | str, tag: str | None = None, rebuild: bool = True
) -> _Function: ...
def offload(
    model_or_region: Any = None, *, budget: int | str, tag: str | None = None, rebuild: bool = True
) -> Any:
    """Keep what a GPU holds within `budget`, in the least time that a plan finds.

    ::

        model = spillway.offload(model, budget="20GiB")   # around each forward pass of the model
        with spillway.offload(budget="20GiB"):            # or around a part of the program
            loss = model(batch)

    The first step of each sequence of shapes is recorded: what can be computed again is let go, and all
    else moves that can. The steps after it follow a plan made from what the recorded one needed and took:
    storage by storage it is kept, moved, or computed again (:func:`spillway.rebuild`), so that the peak is
    within the budget and the predicted time the least; what moves comes back as early as there is room.
    Memory counts from the first
    tensor that a step saves to the end of its backward pass, and on to the end of the first step of an
    optimizer of ``torch.optim``, or ``spillway.step``, that comes before the next entry. It counts as the
    allocator does: over Spillway's what the heap has handed out, over PyTorch's what
    ``torch.cuda.max_memory_allocated`` measures. Each GPU has the budget for itself.

    Args:
        model_or_region: a module, whose forward passes run in the region from now on, and which is returned
            (one that is given again has the new budget and tag instead);
            or a function to decorate; or nothing, for the region itself, a context manager and decorator.
        budget: bytes, or text such as ``"20GiB"``.
        rebuild: whether storages may be computed again; without it they only move.
        tag: a name under which the region is planned and counted. Regions that are entered in the same step
            must have the same tag and the same budget, which a GPU holds for all of them; models that train
            in steps of their own keep their plans under a tag each. Default: ``"budget"``.

    Raises:
        TypeError, ValueError: `budget` is no size, or not above 0; at the first entry, it is more than the
            GPU has, or the step has another budget or a budget under another tag. The other argument is
            neither a module nor a function, or `tag` no string.
        BudgetError: from the end of the step (``backward``, the optimizer's ``step``, ``spillway.step`` or
            the next entry, whichever comes first): moving everything was not enough.
    """
    import torch

    region = BudgetRegion(budget, tag, rebuild)
    if model_or_region is None:
        return region
    if isinstance(model_or_region, torch.nn.Module):
        if _given_again(model_or_region, region):
            return model_or_region
        model_or_region.register_forward_pre_hook(region._before, prepend=True)
        model_or_region.register_forward_hook(region._after, always_call=True)
        return model_or_region
    if not callable(model_or_region):
        raise TypeError(f"model_or_region must be a module, a function or None, not {model_or_region!r}")
    return region(model_or_region)
