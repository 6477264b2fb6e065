# SPDX-License-Identifier: Apache-2.0
"""How many bytes an optimizer's parameters, gradients and states have on each GPU."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from spillway._load import glue

if TYPE_CHECKING:
    import torch

__all__ = ["ModelState", "model_state_bytes", "report_model_state", "state_by_class"]

_MOST_REPORTS = 4  # before and after a step
_reports: weakref.WeakKeyDictionary[torch.optim.Optimizer, int] = weakref.WeakKeyDictionary()


def report_model_state(optimizer: torch.optim.Optimizer) -> None:
    """Lets the runtime compare them with a budget, if a tag has one, in the optimizer's first two steps: its
    states are made in the first."""
    if _reports.get(optimizer, 0) >= _MOST_REPORTS or not glue().has_budget():
        return
    _reports[optimizer] = _reports.get(optimizer, 0) + 1
    for device, size in model_state_bytes(optimizer).items():
        if not glue().job_budget(device):  # otherwise it leaves the GPU where the budget has no room
            glue().model_state(device, size)


def model_state_bytes(optimizer: torch.optim.Optimizer) -> dict[int, int]:
    """By GPU. Tensors that share a storage count once, wrappers as what they hold on this rank."""
    return {device: sum(sizes) for device, sizes in state_by_class([optimizer]).items()}


class ModelState(NamedTuple):
    """Bytes on one GPU, by class."""

    parameters: int
    gradients: int
    optimizer_states: int


def state_by_class(optimizers: Iterable[torch.optim.Optimizer]) -> dict[int, ModelState]:
    """Bytes on the GPU that the optimizers reference, by GPU. A storage counts once, as a parameter or a
    gradient. Offloaded ones do not count."""
    sizes: dict[int, list[int]] = {}
    seen: set[int] = set()
    pairs = [each for optimizer in optimizers for each in _tensors(optimizer)]
    for index, tensor in sorted(pairs, key=lambda pair: pair[0]):
        # Tensors without a storage, such as those of lazy modules, take no memory.
        with contextlib.suppress(AttributeError, RuntimeError, NotImplementedError, ValueError):
            storage = getattr(tensor, "_local_tensor", tensor).untyped_storage()
            if storage.device.type == "cuda" and storage.data_ptr() not in seen:
                seen.add(storage.data_ptr())
                if glue().is_offloaded(storage):
                    continue
                sizes.setdefault(storage.device.index, [0, 0, 0])[index] += storage.nbytes()
    return {device: ModelState(*size) for device, size in sizes.items()}


def _tensors(optimizer: torch.optim.Optimizer) -> Iterator[tuple[int, Any]]:
    """Each tensor with the index of its class in ModelState."""
    made = vars(optimizer)  # an optimizer that is being constructed has no groups yet
    for group in made.get("param_groups", ()):
        for parameter in group.get("params", ()):
            yield 0, parameter
            if parameter.grad is not None:
                yield 1, parameter.grad
    for states in made.get("state", {}).values():
        if isinstance(states, dict):
            yield from ((2, state) for state in states.values() if hasattr(state, "untyped_storage"))
