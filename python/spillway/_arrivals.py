# SPDX-License-Identifier: Apache-2.0
"""Parameters and buffers that modules and optimizers get without a registration."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from spillway._living import living

__all__ = ["of_modules", "of_optimizers"]


def of_modules(
    is_managed: Callable[[Any], bool], manage_module: Callable[[Any], None], manage: Callable[[Any], None]
) -> None:
    """From now on, where ``is_managed(module)``: ``manage(tensor)`` is called when one of its tensors
    has been moved to the GPU, and ``manage_module(module)`` when it was moved, copied or unpickled."""
    from torch.nn import Module

    kind: Any = Module
    kind._apply = _moving(kind._apply, is_managed, manage_module, manage)
    kind.__setstate__ = _copying(kind.__setstate__, is_managed, manage_module)


def _moving(original: Any, is_managed: Any, manage_module: Any, manage: Any) -> Any:
    """`Module._apply` moves one tensor after the other: each is managed when it has arrived."""

    @functools.wraps(original)
    def apply(self: Any, fn: Any, recurse: bool = True) -> Any:
        if isinstance(fn, _Managing) or not is_managed(self):
            return original(self, fn, recurse)
        moved = original(self, _Managing(fn, manage), recurse)
        for each in self.modules():
            manage_module(each)
        return moved

    return apply


class _Managing:
    def __init__(self, fn: Callable[[Any], Any], manage: Callable[[Any], None]) -> None:
        self.fn = fn
        self.manage = manage

    def __call__(self, tensor: Any) -> Any:
        moved = self.fn(tensor)
        if moved is not tensor and moved.is_cuda:
            self.manage(moved)
        return moved


def _copying(original: Any, is_managed: Any, manage_module: Any) -> Any:
    """`copy.deepcopy` and unpickling give a module all of its tensors at once."""

    @functools.wraps(original)
    def __setstate__(self: Any, state: Any) -> None:
        original(self, state)
        if is_managed(self):
            manage_module(self)

    return __setstate__


def of_optimizers(
    manage_given: Callable[[Iterable[Any]], bool], manage_module: Callable[[Any], None] | None
) -> None:
    """From now on, ``manage_given(parameters)`` is called for what an optimizer is given. Libraries put
    parameters into a module's dictionary too: at the first optimizer, and whenever ``manage_given`` returns
    that it met an unknown one, ``manage_module`` is called for all modules."""
    from torch.nn import Module
    from torch.optim import Optimizer

    original = Optimizer.add_param_group
    searched: list[bool] = []

    @functools.wraps(original)
    def add_param_group(self: Any, param_group: dict[str, Any]) -> None:
        original(self, param_group)
        unknown = manage_given(self.param_groups[-1]["params"])
        if manage_module is None or (searched and not unknown):
            return
        searched.append(True)
        for each in living(Module):
            if "_parameters" in vars(each) and "_buffers" in vars(each):
                manage_module(each)

    Optimizer.add_param_group = add_param_group  # type: ignore[method-assign]
