# SPDX-License-Identifier: Apache-2.0
"""Hooks of the steps of all optimizers, compiled ones too."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

__all__ = ["on_steps"]

_Hook = Callable[["torch.optim.Optimizer"], None]


def on_steps(before: _Hook | None = None, after: _Hook | None = None) -> None:
    """From now on, call them with the optimizer before and after each step of optimizers of ``torch.optim``.

    ``torch.compile`` must not trace them: its graph would break. After a step that it compiles, `after` is
    called when the gradients are cleared.
    """
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    watch = _Watch.instance()
    if before is not None:
        register_optimizer_step_pre_hook(_untraced(before))
    if after is not None:
        register_optimizer_step_post_hook(_untraced(after))
        watch.after.append(after)


def _untraced(hook: _Hook) -> Callable[..., None]:
    import torch

    def call(optimizer: torch.optim.Optimizer, *_: object) -> None:
        if not torch.compiler.is_compiling():
            hook(optimizer)

    return call


class _Watch:
    """Finds optimizers whose steps call no hooks: they clear gradients that no step with hooks has used."""

    def __init__(self) -> None:
        import torch
        from torch.optim.optimizer import register_optimizer_step_post_hook

        self.after: list[_Hook] = []
        self.stepped: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()  # since they cleared them
        register_optimizer_step_post_hook(_untraced(self.stepped.add))
        kind: Any = torch.optim.Optimizer
        kind.zero_grad = self.clearing(kind.zero_grad)

    @staticmethod
    @functools.cache
    def instance() -> _Watch:
        return _Watch()

    def clearing(self, original: Callable[..., None]) -> Callable[..., None]:
        import torch

        @functools.wraps(original)
        def zero_grad(optimizer: Any, *arguments: Any, **options: Any) -> None:
            if not torch.compiler.is_compiling():
                if optimizer not in self.stepped and _has_stepped(optimizer):
                    for hook in self.after:
                        hook(optimizer)
                self.stepped.discard(optimizer)
            original(optimizer, *arguments, **options)

        return zero_grad


def _has_stepped(optimizer: torch.optim.Optimizer) -> bool:
    """Whether it may have, since it last cleared the gradients: there are some, and it has states."""
    parameters = (each for group in optimizer.param_groups for each in group["params"])
    return bool(optimizer.state) and any(each.grad is not None for each in parameters)
