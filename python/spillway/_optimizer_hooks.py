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


def on_steps(before: _Hook | None = None, after: _Hook | None = None) -> None:
    """From now on, call them with the optimizer before and after each step of optimizers of ``torch.optim``.

    ``torch.compile`` must not trace them: its graph would break. Where a program has replaced an optimizer's
    ``step`` by a compiled one, `after` is called when that optimizer clears the gradients.
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
        if not is_compiling():
            for hook in _before:
                hook(optimizer)

    def end(optimizer: Any, *_: object) -> None:
        if not is_compiling():
            _stepped.add(optimizer)
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


def has_compiled_step(optimizer: Any) -> bool:
    """Whether the program has done ``optimizer.step = torch.compile(optimizer.step)``."""
    return hasattr(optimizer.step, "_torchdynamo_orig_callable")


def _has_stepped(optimizer: Any) -> bool:
    """Whether a compiled ``step`` may have stepped it since it last cleared the gradients: there are some,
    and it has states."""
    parameters = (each for group in optimizer.param_groups for each in group["params"])
    return (
        has_compiled_step(optimizer)
        and bool(optimizer.state)
        and any(each.grad is not None for each in parameters)
    )
