# SPDX-License-Identifier: Apache-2.0
"""A hook that is called when a parameter's gradient has been accumulated, also after the parameter was
swapped."""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

__all__ = ["add_hook", "has_hook", "keep_when_swapped"]

_Hook = Callable[[Any], None]


def has_hook(parameter: Any, hook: _Hook) -> bool:
    """Whether add_hook() was called for it."""
    hooks = parameter._post_accumulate_grad_hooks
    return hooks is not None and hook in hooks.values()


def add_hook(parameter: Any, hook: _Hook) -> None:
    """Once. Requires a leaf that requires a gradient."""
    if not has_hook(parameter, hook):
        parameter.register_post_accumulate_grad_hook(hook)


def keep_when_swapped(hook: _Hook) -> None:
    """From now on, tensors that have the hook keep it when their contents are swapped. PyTorch swaps what
    calls the hooks, but not the attribute by which it finds them."""
    import torch.utils
    from torch.utils.hooks import RemovableHandle

    original: Any = torch.utils.swap_tensors

    @functools.wraps(original)
    def swap_tensors(t1: Any, t2: Any) -> None:
        called = [(t1, t2._post_accumulate_grad_hooks), (t2, t1._post_accumulate_grad_hooks)]
        original(t1, t2)
        for tensor, hooks in called:
            if not has_hook(tensor, hook) or not (tensor.is_leaf and tensor.requires_grad):
                continue
            if hooks is None:
                hooks = tensor._post_accumulate_grad_hooks = OrderedDict()
            if hook not in hooks.values():
                hooks[RemovableHandle(hooks).id] = hook

    torch.utils.swap_tensors = swap_tensors
