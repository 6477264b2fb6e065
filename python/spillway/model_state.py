# SPDX-License-Identifier: Apache-2.0
"""How many bytes an optimizer's parameters, gradients and states have on each GPU."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from spillway._load import glue

if TYPE_CHECKING:
    import torch

__all__ = ["model_state_bytes", "report_model_state"]

_MOST_REPORTS = 4  # before and after a step
_reports: weakref.WeakKeyDictionary[torch.optim.Optimizer, int] = weakref.WeakKeyDictionary()


def report_model_state(optimizer: torch.optim.Optimizer) -> None:
    """Lets the runtime compare them with a budget, if a tag has one, in the optimizer's first two steps: its
    states are made in the first."""
    if _reports.get(optimizer, 0) >= _MOST_REPORTS or not glue().has_budget():
        return
    _reports[optimizer] = _reports.get(optimizer, 0) + 1
    for device, size in model_state_bytes(optimizer).items():
        glue().model_state(device, size)


def model_state_bytes(optimizer: torch.optim.Optimizer) -> dict[int, int]:
    """By GPU. Tensors that share a storage count once, wrappers as what they hold on this rank."""
    sizes: dict[int, int] = {}
    seen: set[int] = set()
    for tensor in _tensors(optimizer):
        # Tensors without a storage, such as those of lazy modules, take no memory.
        with contextlib.suppress(AttributeError, RuntimeError, NotImplementedError, ValueError):
            storage = getattr(tensor, "_local_tensor", tensor).untyped_storage()
            if storage.device.type == "cuda" and storage.data_ptr() not in seen:
                seen.add(storage.data_ptr())
                sizes[storage.device.index] = sizes.get(storage.device.index, 0) + storage.nbytes()
    return sizes


def _tensors(optimizer: torch.optim.Optimizer) -> Iterator[Any]:
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            yield parameter
            if parameter.grad is not None:
                yield parameter.grad
    for states in optimizer.state.values():
        if isinstance(states, dict):
            yield from (state for state in states.values() if hasattr(state, "untyped_storage"))
