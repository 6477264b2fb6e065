# SPDX-License-Identifier: Apache-2.0
"""Budgets of models whose parameters, buffers, gradients and optimizer states may leave the GPU."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from spillway import _managed
from spillway._load import glue

if TYPE_CHECKING:
    import torch

__all__ = ["SMALLEST", "manage", "optimizers_of"]

SMALLEST = 32 << 20  # bytes; the heap holds no smaller budget

_held: dict[int, Any] = {}  # by id() of a model, the last given last


def manage(model: torch.nn.Module, budget: Any, optimizers: Iterable[torch.optim.Optimizer]) -> None:
    """Manage the model state of `model`, and keep the process within `budget`, a glue().Budget, as long as
    the model exists. The budget that was given last is held."""
    if not _managed.manages_everything():
        key = id(model)
        if key not in _held:
            weakref.finalize(model, _ended, key).atexit = False
        _held.pop(key, None)
        _held[key] = budget
        glue().hold_budget(budget)
    _managed.manage_modules(model, optimizers)


def _ended(key: int) -> None:
    del _held[key]
    glue().hold_budget(next(reversed(_held.values()), None))


def optimizers_of(model: torch.nn.Module | None, given: Any) -> list[torch.optim.Optimizer]:
    """The argument `optimizer` of :func:`spillway.offload`. Raises TypeError, ValueError and RuntimeError."""
    import torch

    if given is None:
        return []
    if not isinstance(model, torch.nn.Module):
        raise TypeError(
            "optimizer needs a model, as in spillway.offload(model, budget=0.8, optimizer=optimizer)"
        )
    optimizers = [given] if isinstance(given, torch.optim.Optimizer) else _listed(given)
    if not glue().stats()["uses_spillway"]:
        raise RuntimeError(
            "optimizer needs Spillway's allocator, because only its memory can be offloaded. Call "
            "spillway.use_allocator() before CUDA is initialized."
        )
    known = {id(each) for each in model.parameters()}
    for optimizer in optimizers:
        name = type(optimizer).__name__
        steps = [each for group in optimizer.param_groups for each in group["params"]]
        if known.isdisjoint(map(id, steps)):
            raise ValueError(
                f"optimizer: {name} steps no parameter of the model. Give the optimizer of this model, and "
                "create it after the model's parameters were last replaced."
            )
        if not any(each.is_cuda for each in steps):
            raise ValueError(
                f"optimizer: {name} steps no parameter on a GPU. Move the model to the GPU, then create the "
                "optimizer."
            )
    return optimizers


def _listed(given: Any) -> list[torch.optim.Optimizer]:
    import torch

    listed = list(given) if isinstance(given, Iterable) else []
    if not listed or not all(isinstance(each, torch.optim.Optimizer) for each in listed):
        raise TypeError(f"optimizer must be an optimizer of torch.optim or a list of them, not {given!r}")
    return listed
