# SPDX-License-Identifier: Apache-2.0
"""Hooks of the steps of all optimizers, compiled ones too."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

__all__ = ["has_compiled_step", "on_steps"]

_Hook = Callable[["torch.optim.Optimizer"], None]
_before: list[_Hook] = []
_after: list[_Hook] = []
_stepped: weakref.WeakSet[Any] = weakref.WeakSet()  # optimizers, until they clear the gradients
_seen: weakref.WeakSet[Any] = weakref.WeakSet()  # those of which a step was seen
_traced: list[bool] = []  # not empty once torch.compile has traced a step


def on_steps(before: _Hook | None = None, after: _Hook | None = None) -> None:
    """From now on, call them with the optimizer before and after each step of optimizers of ``torch.optim``.

    ``torch.compile`` must not trace them: its graph would break. Where a program has compiled an optimizer's
    ``step``, or a function that calls it, `after` is called when that optimizer clears the gradients.
    """
    _start()
    if before is not None:
        _before.append(before)
    if after is not None:
        _after.append(after)


@functools.cache
def _start() -> None:
    """One hook before and one after each step: ``torch.compile`` traces each of them once."""
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    is_compiling = torch.compiler.is_compiling

    def begin(optimizer: Any, *_: object) -> None:
        if is_compiling():
            _is_traced()
        else:
            for hook in _before:
                hook(optimizer)

    def end(optimizer: Any, *_: object) -> None:
        if not is_compiling():
            _stepped.add(optimizer)
            _seen.add(optimizer)
            for hook in _after:
                hook(optimizer)

    def clearing(original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def zero_grad(optimizer: Any, *arguments: Any, **options: Any) -> None:
            if not is_compiling():
                if optimizer not in _stepped and _has_stepped(optimizer):
                    for hook in _after:
                        hook(optimizer)
                _stepped.discard(optimizer)
            original(optimizer, *arguments, **options)

        return zero_grad

    register_optimizer_step_pre_hook(begin)
    register_optimizer_step_post_hook(end)
    kind: Any = torch.optim.Optimizer
    kind.zero_grad = clearing(kind.zero_grad)


def _is_traced() -> bool:
    _traced.append(True)
    return True


_is_traced._dynamo_marked_constant = True  # type: ignore[attr-defined]  # it runs while it is traced


def has_compiled_step(optimizer: Any) -> bool:
    """Whether ``torch.compile`` runs its steps, as far as it is known: the program has replaced its ``step``
    by a compiled one, or steps have been traced and none of this optimizer has been seen."""
    replaced = hasattr(optimizer.step, "_torchdynamo_orig_callable")
    return replaced or (bool(_traced) and optimizer not in _seen)


def _has_stepped(optimizer: Any) -> bool:
    """Whether a compiled ``step`` may have stepped it since it last cleared the gradients: there are some,
    and it has states."""
    parameters = (each for group in optimizer.param_groups for each in group["params"])
    return (
        has_compiled_step(optimizer)
        and bool(optimizer.state)
        and any(each.grad is not None for each in parameters)
    )
