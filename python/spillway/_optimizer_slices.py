# SPDX-License-Identifier: Apache-2.0
"""The step of an optimizer, one slice of its parameters after the other.

An optimizer of ``torch.optim`` iterates over ``param_groups`` and computes each parameter's update from that
parameter, its gradient and its states alone. During a step the groups are handed out in slices, so that the
temporaries, and the tensors that have to be on the GPU, are those of a slice. Bits do not change.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import sys
import weakref
from collections.abc import Callable, Iterator
from types import CodeType
from typing import TYPE_CHECKING, Any, TypeVar

from spillway._host_shortage import warn_of_host_shortage
from spillway._load import glue
from spillway._optimizer_hooks import has_compiled_step, on_steps

if TYPE_CHECKING:
    import torch

__all__ = ["passing", "start", "step_in_slices", "whole_steps"]

_TORCHS = "torch.optim."
_WHOLE = "_spillway_param_groups"  # in an optimizer's __dict__, during its step
_OF_PARAMETERS = ("param_groups", "state", _WHOLE)
Stepped = Callable[[Any, list[Any]], None]
_Optimizer = TypeVar("_Optimizer", bound="type[torch.optim.Optimizer]")
_given: weakref.WeakSet[type] = weakref.WeakSet()  # by step_in_slices()
_whole: dict[str, str] = {}
#: By id() of a parameter that leaves the GPU when it has been stepped: most bytes of a slice with it.
passing: dict[int, int] = {}


def step_in_slices(optimizer: _Optimizer) -> _Optimizer:
    """Let the steps of an optimizer's class run in slices of its parameters, as those of ``torch.optim`` do.

    ::

        @spillway.memory.step_in_slices
        class Lion(torch.optim.Optimizer): ...

        spillway.memory.step_in_slices(other_library.Adan)  # once, before its first step

    Only the parameters, gradients and states of one slice then have to be on the GPU at once. The class is
    returned unchanged. It applies to this class, and to subclasses that do not define ``step``.

    The condition: ``step`` iterates over ``self.param_groups`` itself, and computes the update of each
    parameter from that parameter, its gradient, its states and its group's options alone. Iterating over
    the groups then yields each group several times, with a part of its parameters each time.

    Otherwise results are wrong. A norm over all gradients becomes one per slice. A group's counter
    (``group["step"] += 1``), as schedule-free optimizers, Prodigy and apex have it, counts once per slice:
    to store an option in a group is a RuntimeError in the first step. Spillway cannot detect a counter that
    is a tensor, or an attribute of the optimizer.

    Raises TypeError if `optimizer` is not a class of optimizers that defines or inherits ``step``.
    """
    import torch

    if not (isinstance(optimizer, type) and issubclass(optimizer, torch.optim.Optimizer)):
        raise TypeError(
            f"step_in_slices: optimizer must be a subclass of torch.optim.Optimizer, not {optimizer!r}"
        )
    if _owner(optimizer) is torch.optim.Optimizer:
        raise TypeError(f"step_in_slices: {optimizer.__name__} defines no step")
    if issubclass(_owner(optimizer), torch.optim.LBFGS):
        raise TypeError(f"step_in_slices: {optimizer.__name__}: {_LBFGS}")
    _given.add(_owner(optimizer))
    _works_by_parameter.cache_clear()
    return optimizer


_LBFGS = "one step of LBFGS needs all parameters at once"


def whole_steps() -> dict[str, str]:
    """Why steps did not run in slices, by class of optimizer, since the process started."""
    return dict(_whole)


@functools.cache
def start(steps: Callable[[Any], None], stepped: Stepped) -> None:
    """From now on. `steps(optimizer)` is called before each step, and `stepped(optimizer, parameters)` after
    each slice, and after the step of an optimizer that is not sliced."""

    def before(optimizer: torch.optim.Optimizer) -> None:
        _restore(optimizer)  # after a step that raised
        steps(optimizer)
        if why := _why_whole(type(optimizer)):
            _whole[_name(optimizer)] = why
        else:
            vars(optimizer)[_WHOLE] = optimizer.param_groups
            optimizer.param_groups = _Slices(optimizer, stepped)

    def after(optimizer: torch.optim.Optimizer) -> None:
        _restore(optimizer)
        if has_compiled_step(optimizer):
            _whole[_name(optimizer)] = "its step is compiled"
        for group in optimizer.param_groups:
            stepped(optimizer, group["params"])
        glue().managed_step_ended()
        warn_of_host_shortage()

    on_steps(before, after)


def _restore(optimizer: torch.optim.Optimizer) -> None:
    glue().end_overlapped()
    whole = vars(optimizer).pop(_WHOLE, None)
    if whole is not None:
        optimizer.param_groups = whole


def _name(optimizer: torch.optim.Optimizer) -> str:
    return f"{type(optimizer).__module__}.{type(optimizer).__qualname__}"


def _why_whole(kind: type) -> str:
    """Why its step cannot run in slices; empty if it can."""
    import torch

    if not _works_by_parameter(kind):
        if issubclass(_owner(kind), torch.optim.LBFGS):
            return _LBFGS
        return "its step is not known to work parameter by parameter (spillway.memory.step_in_slices)"
    return "its step is captured in a CUDA graph" if _captures() else ""


def _owner(kind: type) -> type:
    """The class that defines its step."""
    return next((each for each in kind.__mro__ if "step" in vars(each)), object)


@functools.cache
def _works_by_parameter(kind: type) -> bool:
    """Whether its step is that of an optimizer of torch.optim, or of a user's class, that works parameter by
    parameter."""
    import torch

    owner = _owner(kind)
    return owner in _given or (owner.__module__.startswith(_TORCHS) and owner is not torch.optim.LBFGS)


@functools.cache
def _steps(kind: type) -> list[CodeType]:
    """The code of its step, and of those that this may call by `super()`, without their decorators."""
    steps = (inspect.unwrap(vars(each)["step"]) for each in kind.__mro__ if "step" in vars(each))
    return [each.__code__ for each in steps if hasattr(each, "__code__")]


def _captures() -> bool:
    import torch

    return torch.cuda.is_current_stream_capturing()


def _values(states: Any) -> list[Any]:
    return list(states.values()) if isinstance(states, dict) else []


def _is_gpu_tensor(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor) and value.is_cuda


def _on_gpu(value: Any) -> bool:
    """Whether it is a tensor on a GPU, or contains one."""
    if isinstance(value, dict):
        return any(map(_on_gpu, value.values()))
    if isinstance(value, (tuple, list, set)):
        return any(map(_on_gpu, value))
    return _is_gpu_tensor(value)


def _runs_users_code() -> bool:
    """Whether a mode sees the operators of the step: it may create tensors of its own."""
    import torch
    from torch.overrides import _get_current_function_mode_stack
    from torch.utils._device import DeviceContext

    modes: list[Any] = _get_current_function_mode_stack()
    return bool(torch._C._len_torch_dispatch_stack()) or any(
        not isinstance(each, DeviceContext) for each in modes
    )


def _can_be_sliced(parameters: list[Any]) -> bool:
    """Whether the optimizer chooses the same implementation for each slice as for the whole group."""
    import torch

    return all(
        type(each) in (torch.Tensor, torch.nn.Parameter)
        and each.is_cuda
        and (each.grad is None or each.grad.layout is torch.strided)
        for each in parameters
    )


class _Slice(dict[str, Any]):
    """A group with some of its parameters. What the step stores in it goes to the group."""

    def __init__(self, group: dict[str, Any], parameters: list[Any], user: str) -> None:
        super().__init__(group)
        super().__setitem__("params", parameters)
        self._group = group
        self._user = user  # the name of a class that step_in_slices() was given

    def __setitem__(self, key: str, value: Any) -> None:
        if self._user:
            raise RuntimeError(
                f"{self._user}: its step stores {key!r} in its group, once for each slice of parameters, so "
                "its results would not be those of the whole step. Do not use "
                "spillway.memory.step_in_slices with this class."
            )
        super().__setitem__(key, value)
        if key != "params":
            self._group[key] = value


class _Slices(list[Any]):
    """The groups of an optimizer. Its step iterates over them in slices, other code over whole groups."""

    def __init__(self, optimizer: torch.optim.Optimizer, stepped: Stepped) -> None:
        super().__init__(optimizer.param_groups)
        self._optimizer = optimizer
        self._stepped = stepped
        kind: Any = type(optimizer)
        self._steps = _steps(kind)
        self._user = kind.__name__ if _owner(kind) in _given else ""
        own = (each for name, each in vars(optimizer).items() if name not in _OF_PARAMETERS)
        self._overlaps = not self._user and not any(map(_on_gpu, own)) and not _runs_users_code()

    def __iter__(self) -> Iterator[Any]:
        in_step = sys._getframe(1).f_code in self._steps
        return self._slices() if in_step else super().__iter__()

    def _slices(self) -> Iterator[Any]:
        try:
            for group in super().__iter__():
                if not _can_be_sliced(group["params"]):
                    yield group
                    continue
                for parameters in self._cut_all(group["params"]):
                    used = self._overlap(group, parameters)
                    yield _Slice(group, parameters, self._user)
                    glue().end_overlapped()
                    if used and not self._gpu_tensors(parameters) <= used:  # it has created a state
                        glue().join_overlapped_step(parameters[0].device.index)
                    self._stepped(self._optimizer, parameters)
        finally:  # also after a step that raised
            _restore(self._optimizer)

    def _overlap(self, group: dict[str, Any], parameters: list[Any]) -> set[Any]:
        """Lets the kernels of a slice run beside later work of the program, if that is safe. Returns what
        they use; nothing if the program's stream runs them."""
        if not self._may_overlap(parameters):
            return set()
        if any(_on_gpu(each) for name, each in group.items() if name != "params"):
            return set()  # other work may change what the kernels read
        stepped = [each for each in parameters if each.grad is not None]
        states = [self._optimizer.state.get(each) for each in stepped]
        if not all(states) or not all(map(glue().manages, stepped)):
            return set()  # states are created, and managed afterwards
        if any(_on_gpu(each) and not _is_gpu_tensor(each) for of in states for each in _values(of)):
            return set()  # in a list
        used = self._gpu_tensors(stepped)
        return used if glue().begin_overlapped(list(used)) else set()

    def _may_overlap(self, parameters: list[Any]) -> bool:
        return bool(parameters and self._overlaps and glue().overlaps_step(parameters[0].device.index))

    def _gpu_tensors(self, parameters: list[Any]) -> set[Any]:
        """These that have a gradient, their gradients and their states."""
        found: set[Any] = set()
        for each in parameters:
            if each.grad is not None:
                states = filter(_is_gpu_tensor, _values(self._optimizer.state.get(each)))
                found.update((each, each.grad, *states))
        return found

    def _cut_all(self, parameters: list[Any]) -> Iterator[list[Any]]:
        """Where the step may overlap, what is managed apart from what is not, in the same order."""
        if self._may_overlap(parameters):
            for _, part in itertools.groupby(parameters, glue().manages):
                yield from self._cut(list(part))
        else:
            yield from self._cut(parameters)

    def _cut(self, parameters: list[Any]) -> Iterator[list[Any]]:
        part: list[Any] = []
        size = 0
        # A slice has gradients, states and temporaries too.
        most = glue().slice_bytes(parameters[0].device.index) // 4 if parameters else 0
        for parameter in parameters:
            part.append(parameter)
            size += parameter.nbytes
            if size >= min(most, passing.get(id(parameter), most)):
                yield part
                part, size = [], 0
        if part or not parameters:
            yield part
