# SPDX-License-Identifier: Apache-2.0
"""Records calls of custom autograd functions, and runs their forward again."""

from __future__ import annotations

import enum
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.autograd.function import FunctionCtx

from spillway._load import glue

__all__ = ["record_calls"]

_Function = type[torch.autograd.Function]

#: Arguments of these types have the same value when forward runs again.
_VALUES = (
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    type(None),
    enum.Enum,
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
)


class _Context(FunctionCtx):
    """Replaces `ctx` when forward runs again."""

    def __init__(self, needs_input_grad: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs_input_grad
        self.saved: tuple[torch.Tensor | None, ...] = ()

    def save_for_backward(self, *tensors: torch.Tensor | None) -> None:
        self.saved = tensors


class _Given:
    """Replaces a tensor among the arguments."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._strides = tensor.stride()
        self.requires_grad = tensor.requires_grad

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """An equal tensor as the function got it: kernels may add in an order that depends on strides."""
        if tensor.stride() != self._strides and 0 not in self._strides:
            as_given = torch.empty_strided(
                tensor.shape, self._strides, dtype=tensor.dtype, device=tensor.device
            )
            tensor = as_given.copy_(tensor)
        return tensor.detach().requires_grad_(self.requires_grad)


class _Call:
    """A call, without its tensors."""

    def __init__(self, function: _Function, arguments: Sequence[Any]) -> None:
        self._function = function
        self._arguments = [
            _Given(each) if isinstance(each, torch.Tensor) else _copy(each) for each in arguments
        ]

    def again(self, tensors: list[torch.Tensor], saved: bool, number: int) -> torch.Tensor:
        """The result of that number, or the tensor of that number in save_for_backward."""
        given = iter(tensors)
        arguments = tuple(
            each.of(next(given)) if isinstance(each, _Given) else _copy(each) for each in self._arguments
        )
        context = _Context(tuple(isinstance(each, _Given) and each.requires_grad for each in self._arguments))
        function: Any = self._function
        if _sets_up_context(function):
            results = function.forward(*arguments)
            if saved:
                function.setup_context(context, _inputs(function, arguments), results)
        else:
            results = function.forward(context, *arguments)
        if saved:
            results = context.saved
        elif not isinstance(results, tuple):
            results = (results,)
        result = results[number] if number < len(results) else None
        if not isinstance(result, torch.Tensor):
            raise RuntimeError(
                f"{function.__name__}: forward returned or saved other tensors when it ran again. "
                "Let it depend on its arguments alone, or do not decorate it with spillway.recomputable."
            )
        return result


def _copy(value: Any) -> Any:
    """A value that no one else changes."""
    return [_copy(each) for each in value] if type(value) is list else value


def _is_value(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return all(map(_is_value, value))
    return isinstance(value, _VALUES)


def _sets_up_context(function: _Function) -> bool:
    return function.setup_context is not torch.autograd.Function.setup_context


def _inputs(function: _Function, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """What setup_context gets as its inputs."""
    bound = inspect.signature(function.forward).bind(*args)
    bound.apply_defaults()
    return bound.args


def _run(apply: Callable[[], Any], function: _Function, args: tuple[Any, ...], cheap: bool) -> Any:
    repeats = all(isinstance(each, torch.Tensor) or _is_value(each) for each in args)
    call = _Call(function, args) if repeats else None
    return glue().run_function(apply, call, args, function.__name__, cheap)


def record_calls(function: _Function, cheap: bool) -> None:
    """From now on calls of this class are recorded on threads that recompute. A second time it only sets
    `cheap`."""
    changed: Any = function
    if "_spillway_cheap" in function.__dict__:
        changed._spillway_cheap = cheap
        return
    original: Any = function.apply
    original = original.__func__

    @functools.wraps(original)
    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        # torch.compile does not look here: it traces forward itself.
        if cls is not function or not glue.cache_info().currsize or not glue().records_calls():
            return original(cls, *args, **kwargs)
        if kwargs:  # PyTorch's error
            return original(cls, *args, **kwargs)
        return _run(functools.partial(original, cls, *args), cls, args, changed._spillway_cheap)

    def save_for_backward(self: Any, *tensors: torch.Tensor | None) -> None:
        FunctionCtx.save_for_backward(self, *tensors)  # type: ignore[arg-type]
        if glue.cache_info().currsize:
            glue().function_will_save(tensors)

    changed._spillway_cheap = cheap
    changed.apply = classmethod(apply)
    changed._backward_cls.save_for_backward = save_for_backward
