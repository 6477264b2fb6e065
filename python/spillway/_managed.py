# SPDX-License-Identifier: Apache-2.0
"""Finds model state, so that parameters, buffers, gradients and optimizer states can leave the GPU when a
budget has no room for them: that of the whole program, or of the modules that were given."""

from __future__ import annotations

import functools
import os
import sys
import weakref
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from spillway import _gradient_hooks
from spillway._after_import import after_import
from spillway._load import glue

if TYPE_CHECKING:
    import torch

__all__ = [
    "keep_modules",
    "keep_optimizer",
    "keep_parameter",
    "manage_everything",
    "manage_modules",
    "manages_everything",
]

_MIN_BYTES = 1024  # smaller storages stay on the GPU
_CHAOS_ONE_IN = 4
_GRADIENT = 1  # the slot of a parameter's gradient; its states follow
_FIRST_STATE = 2


_modules: weakref.WeakSet[Any] = weakref.WeakSet()  # whose parameters and buffers are managed
_kept_modules: weakref.WeakSet[Any] = weakref.WeakSet()
_kept_optimizers: weakref.WeakSet[Any] = weakref.WeakSet()
_kept_early: list[weakref.ref[Any]] = []  # parameters that were not managed yet


def manage_everything(budget: str) -> None:
    """Keep each GPU within the budget for the whole process: manage all model state that exists from now on,
    and run the steps of known optimizers in slices. Before CUDA starts.

    Raises ValueError for an invalid budget.
    """
    glue().hold_budget(budget)
    _manages_everything.append(True)
    _start()


def manage_modules(model: torch.nn.Module, optimizers: Iterable[torch.optim.Optimizer] = ()) -> None:
    """The parameters and buffers of a model, now and when they are replaced, their gradients, and the states
    of all optimizers that step them, from their next step on. The given optimizers' states are managed
    now."""
    _start()
    _modules.update(model.modules())
    for _, seen in _seen.values():
        seen.clear()
    for module in model.modules():
        _manage_module(module)
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            manage_states(optimizer, group["params"])


def manages_everything() -> bool:
    """Whether manage_everything() was called."""
    return bool(_manages_everything)


_manages_everything: list[bool] = []


@functools.cache
def _start() -> None:
    from torch.nn.modules import module

    from spillway import (
        _arrivals,
        _compiled_kernels,
        _higher_order,
        _loading,
        _optimizer_slices,
        _storage_access,
    )

    glue().manage_model_state(_MIN_BYTES)
    if seed := os.environ.get("SPILLWAY_EMULATE_CHAOS"):
        glue().set_chaos(int(seed), _CHAOS_ONE_IN)
    _higher_order.pass_through()
    module.register_module_parameter_registration_hook(_parameter_registered)
    module.register_module_buffer_registration_hook(_buffer_registered)
    _arrivals.of_modules(_is_managed, _manage_module, _manage_arrived)
    _arrivals.of_optimizers(_manage_given, _manage_module if _manages_everything else None)
    _optimizer_slices.start(_steps, _stepped)
    _loading.start_states(_manage_loaded_state)
    _storage_access.start(_manage_alias)
    _compiled_kernels.start()
    _gradient_hooks.keep_when_swapped(_manage_gradient)
    if _manages_everything:
        _loading.start(_manage_arrived)
    after_import("torch.distributed.distributed_c10d", _keep_in_process_groups)


def manage_parameter(parameter: torch.Tensor) -> None:
    """A parameter, and from now on its gradients."""
    if _is_uninitialized(parameter) or _stays_in_process_group(parameter):
        return
    state = glue()
    state.manage(parameter, "parameters", None, 0)
    if parameter.grad is not None:
        _manage_gradient(parameter)
    if parameter.requires_grad and parameter.is_leaf:
        _gradient_hooks.add_hook(parameter, _manage_gradient)
    if _kept_early:
        _keep_early(parameter)


def _steps(optimizer: torch.optim.Optimizer) -> None:
    """Manages gradients that no backward pass has accumulated but the program has assigned. Looks again at
    parameters and states that the program has replaced."""
    parameters = [each for group in optimizer.param_groups for each in group["params"]]
    if _in_process_group() or _manages_all(optimizer, parameters):
        return
    seen = _seen_by(optimizer)
    for each in parameters:
        if not _manages_all(optimizer, [each]) and _is_given(each):
            manage_parameter(each)
            seen.discard(id(each))


def _manages_all(optimizer: torch.optim.Optimizer, parameters: list[torch.Tensor]) -> bool:
    """Also their gradients and states."""
    states = optimizer.state.get
    tensors: list[Any] = []
    for each in parameters:
        of = states(each)
        tensors += (each, each.grad, *(of.values() if isinstance(of, dict) else ()))
    return glue().manages_all(tensors, _MIN_BYTES)


def _stepped(optimizer: torch.optim.Optimizer, parameters: list[torch.Tensor]) -> None:
    from spillway._optimizer_slices import passing

    manage_states(optimizer, parameters)
    if passing:
        left = [each for each in parameters if id(each) in passing]
        gradients = [each.grad for each in left if each.grad is not None]
        states = [state for each in left for state in _tensors(optimizer.state.get(each))]
        glue().offload_tensors([*left, *gradients, *states])


def manage_states(optimizer: torch.optim.Optimizer, parameters: list[torch.Tensor]) -> None:
    """The states that an optimizer has of these parameters, as far as these are managed."""
    seen = _seen_by(optimizer)
    new = [each for each in parameters if id(each) not in seen and _is_given(each)]
    if not new:
        return
    if _in_process_group():
        for parameter in new:
            _count_what_stays(optimizer, parameter)
            seen.add(id(parameter))
        return
    state = glue()
    for parameter in new:
        manage_parameter(parameter)
        states = optimizer.state.get(parameter)
        for slot, each in enumerate(_tensors(states), _FIRST_STATE):
            if optimizer in _kept_optimizers:
                _keep(each)  # it may have been managed when it was loaded
            else:
                state.manage(each, "optimizer_states", parameter, slot)
        if parameter.grad is not None:  # a step creates all states
            seen.add(id(parameter))


def _count_what_stays(optimizer: torch.optim.Optimizer, parameter: torch.Tensor) -> None:
    """Optimizers of DeepSpeed step flat buffers, which are parameters of no module."""
    for each in (parameter, parameter.grad, *_tensors(optimizer.state.get(parameter))):
        if each is not None:
            _stays_in_process_group(each)


def keep_modules(model: torch.nn.Module) -> None:
    """Keep its parameters and buffers on the GPU, and all that belongs to them."""
    _kept_modules.update(model.modules())
    for parameter in model.parameters():
        _keep_all_of(parameter)
    for buffer in model.buffers():
        _keep(buffer)


def keep_parameter(parameter: torch.Tensor) -> None:
    """Keep a parameter on the GPU, its gradients, and its states in optimizers."""
    if not _keep_all_of(parameter):
        _kept_early.append(weakref.ref(parameter))


def keep_optimizer(optimizer: torch.optim.Optimizer) -> None:
    """Keep an optimizer's states on the GPU."""
    _kept_optimizers.add(optimizer)
    for states in optimizer.state.values():
        for each in _tensors(states):
            _keep(each)


def _keep_all_of(parameter: Any) -> bool:
    if parameter.grad is not None:
        _keep(parameter.grad)
    for optimizer in list(_seen):
        for each in _tensors(optimizer.state.get(parameter)):
            _keep(each)
    return _keep(parameter)


def _keep(tensor: Any) -> bool:
    """Returns whether it is managed."""
    return glue().keep_on_device(tensor) if tensor.is_cuda else False


def _keep_early(parameter: Any) -> None:
    for each in _kept_early:
        if each() is parameter and _keep(parameter):
            _kept_early.remove(each)
            return


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


def _manage_arrived(tensor: torch.Tensor) -> None:
    if not _stays_in_process_group(tensor):
        glue().manage(tensor, "parameters", None, 0)
        glue().copy_model_state_early()


_state_slots: dict[Any, int] = {}  # by the key of a state


def _manage_loaded_state(parameter: torch.Tensor, state: torch.Tensor, key: Any) -> None:
    """`load_state_dict` of an optimizer brings all states to the GPU before its next step."""
    if state.is_cuda and _is_given(parameter) and not _stays_in_process_group(state):
        slot = _FIRST_STATE + _state_slots.setdefault(key, len(_state_slots))
        glue().manage(state, "optimizer_states", parameter, slot)


def _manage_alias(tensor: torch.Tensor) -> None:
    """Of a storage that may be managed."""
    if _manages_everything or glue().manages(tensor):
        _manage_arrived(tensor)


def _is_given(parameter: Any) -> bool:
    """Whether its states are to be managed."""
    return (
        bool(_manages_everything)
        or _gradient_hooks.has_hook(parameter, _manage_gradient)
        or glue().manages(parameter)
    )


def _manage_given(parameters: Iterable[Any]) -> bool:
    """What an optimizer is given. Returns whether a parameter is managed that was not before."""
    given = [each for each in parameters if each.is_cuda and _is_given(each)]
    new = [each for each in given if not glue().manages(each)]
    for parameter in given:
        manage_parameter(parameter)
    return any(map(glue().manages, new))


def _manage_gradient(parameter: torch.Tensor) -> None:
    import torch

    if torch.compiler.is_compiling():  # the next step finds it
        return
    if parameter.grad is None:  # another hook has used it: the optimizer steps inside the backward pass
        return
    glue().manage(parameter.grad, "gradients", parameter, _GRADIENT)


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


def _parameter_registered(module: Any, _name: str, parameter: Any) -> None:
    # What it returned would replace the parameter.
    if parameter is not None and parameter.is_cuda and _is_managed(module):
        manage_parameter(parameter)
        if module in _kept_modules:
            _keep_all_of(parameter)


def _buffer_registered(module: Any, _name: str, buffer: Any) -> None:
    if buffer is None or not buffer.is_cuda or not _is_managed(module) or _is_uninitialized(buffer):
        return
    if not _stays_in_process_group(buffer):
        glue().manage(buffer, "buffers", None, 0)
        if module in _kept_modules:
            _keep(buffer)


def _is_managed(module: Any) -> bool:
    return bool(_manages_everything) or module in _modules


def _manage_module(module: Any) -> None:
    """Its own tensors, not those of the modules below."""
    for name, parameter in module._parameters.items():
        _parameter_registered(module, name, parameter)
    for name, buffer in module._buffers.items():
        _buffer_registered(module, name, buffer)
