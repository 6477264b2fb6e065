# SPDX-License-Identifier: Apache-2.0
"""Finds a program's model state, so that its parameters, buffers, gradients and optimizer states can leave
the GPU when a budget has no room for them."""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from spillway._after_import import after_import
from spillway._load import glue

if TYPE_CHECKING:
    import torch

__all__ = ["start"]

_MIN_BYTES = 1024  # smaller storages stay on the GPU
_GRADIENT = 1  # the slot of a parameter's gradient; its states follow
_FIRST_STATE = 2


@functools.cache
def start(budget: str) -> None:
    """Keep each GPU within the budget for the whole process: manage all model state that exists from now on,
    and run the steps of known optimizers in slices. Before CUDA starts.

    Raises ValueError for an invalid budget.
    """
    from torch.nn.modules import module

    from spillway import _loading, _optimizer_slices, _storage_access

    glue().manage_model_state(budget, _MIN_BYTES)
    module.register_module_parameter_registration_hook(_parameter_registered)
    module.register_module_buffer_registration_hook(_buffer_registered)
    _manage_what_modules_move(module.Module)
    _optimizer_slices.start(manage_states)
    _storage_access.start(_manage_loaded)
    _loading.start(_manage_loaded)
    after_import("torch.distributed.distributed_c10d", _keep_in_process_groups)


def manage_parameter(parameter: torch.Tensor) -> None:
    """A parameter, and from now on its gradients."""
    if _is_uninitialized(parameter) or _stays_in_process_group(parameter):
        return
    state = glue()
    state.manage(parameter, "parameters", None, 0)
    if parameter.grad is not None:
        _manage_gradient(parameter)
    if parameter.requires_grad and parameter.is_leaf and not _has_hook(parameter):
        parameter.register_post_accumulate_grad_hook(_manage_gradient)


def manage_states(optimizer: torch.optim.Optimizer, parameters: list[torch.Tensor]) -> None:
    """The states that an optimizer has of these parameters."""
    seen = _seen_by(optimizer)
    new = [each for each in parameters if id(each) not in seen]
    if not new or _in_process_group():
        return
    state = glue()
    for parameter in new:
        manage_parameter(parameter)
        states = optimizer.state.get(parameter)
        for slot, each in enumerate(_tensors(states), _FIRST_STATE):
            state.manage(each, "optimizer_states", parameter, slot)
        if parameter.grad is not None:  # a step creates all states
            seen.add(id(parameter))


_seen: weakref.WeakKeyDictionary[Any, tuple[int, set[int]]] = weakref.WeakKeyDictionary()


def _seen_by(optimizer: Any) -> set[int]:
    """The parameters whose states are known. `load_state_dict` replaces all of them."""
    states, seen = _seen.get(optimizer, (0, set()))
    if states != id(optimizer.state):
        seen = set()
        _seen[optimizer] = (id(optimizer.state), seen)
    return seen


def _tensors(states: Any) -> Iterator[Any]:
    import torch

    for each in states.values() if isinstance(states, dict) else ():
        if isinstance(each, torch.Tensor):
            yield each


def _manage_loaded(tensor: torch.Tensor) -> None:
    if not _stays_in_process_group(tensor):
        glue().manage(tensor, "parameters", None, 0)
        glue().copy_loaded_model_state()


def _manage_gradient(parameter: torch.Tensor) -> None:
    glue().manage(parameter.grad, "gradients", parameter, _GRADIENT)


def _has_hook(parameter: Any) -> bool:
    hooks = parameter._post_accumulate_grad_hooks
    return hooks is not None and _manage_gradient in hooks.values()


def _is_uninitialized(tensor: Any) -> bool:
    """Of a lazy module: it has no shape yet, and refuses hooks."""
    from torch.nn.parameter import is_lazy

    return bool(is_lazy(tensor))


def _in_process_group() -> bool:
    """Several ranks share model state in buffers of their own: it stays resident."""
    import torch.distributed

    return torch.distributed.is_available() and torch.distributed.is_initialized()


def _stays_in_process_group(tensor: Any) -> bool:
    """Whether a process group exists. Counts the tensor then."""
    if not _in_process_group():
        return False
    glue().stays_in_process_group(getattr(tensor, "_local_tensor", tensor))
    return True


def _keep_in_process_groups(module: Any) -> None:
    """What a collective works on must not leave meanwhile, and it works on after it has returned."""
    original = module.init_process_group

    @functools.wraps(original)
    def init_process_group(*arguments: Any, **options: Any) -> Any:
        glue().keep_model_state()
        return original(*arguments, **options)

    module.init_process_group = init_process_group
    package: Any = sys.modules.get("torch.distributed")
    if getattr(package, "init_process_group", None) is original:
        package.init_process_group = init_process_group


def _parameter_registered(_module: Any, _name: str, parameter: Any) -> None:
    # What it returned would replace the parameter.
    if parameter is not None and parameter.is_cuda:
        manage_parameter(parameter)


def _buffer_registered(_module: Any, _name: str, buffer: Any) -> None:
    if buffer is None or not buffer.is_cuda or _is_uninitialized(buffer):
        return
    if not _stays_in_process_group(buffer):
        glue().manage(buffer, "buffers", None, 0)


def _manage_what_modules_move(module: Any) -> None:
    """`Module._apply` moves one tensor after the other: each is managed when it has arrived."""
    original = module._apply

    @functools.wraps(original)
    def apply(self: Any, fn: Any, recurse: bool = True) -> Any:
        if isinstance(fn, _Managing):
            return original(self, fn, recurse)
        moved = original(self, _Managing(fn), recurse)
        for parameter in self.parameters():
            if parameter.is_cuda:
                manage_parameter(parameter)
        for name, buffer in self.named_buffers():
            _buffer_registered(self, name, buffer)
        return moved

    module._apply = apply


class _Managing:
    def __init__(self, fn: Callable[[Any], Any]) -> None:
        self.fn = fn

    def __call__(self, tensor: Any) -> Any:
        moved = self.fn(tensor)
        if moved is not tensor and moved.is_cuda:
            _manage_loaded(moved)
        return moved
