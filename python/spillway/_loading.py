# SPDX-License-Identifier: Apache-2.0
"""Loading that brings all tensors to the GPU before a module or a step of an optimizer uses them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from spillway._after_import import after_import

__all__ = ["start", "start_states"]


def start(manage: Callable[[Any], None]) -> None:
    """From now on, `manage(tensor)` is called for each weight when it arrives on the GPU."""
    after_import("safetensors", functools.partial(_manage_read, manage=manage))
    after_import("safetensors.torch", functools.partial(_manage_read, manage=manage))
    after_import("transformers.core_model_loading", functools.partial(_manage_weights, manage=manage))
    after_import("transformers.modeling_utils", _reserve_nothing)


def start_states(manage: Callable[[Any, Any, Any], None]) -> None:
    """From now on, `manage(parameter, state, key)` is called for each state of an optimizer that
    ``load_state_dict`` has moved."""
    import torch

    kind: Any = torch.optim.Optimizer
    original = kind._process_value_according_to_param_policy

    @functools.wraps(original)
    def process(param: Any, value: Any, param_id: Any, param_groups: Any, key: Any = None) -> Any:
        state = original(param, value, param_id, param_groups, key)
        manage(param, state, key)
        return state

    kind._process_value_according_to_param_policy = staticmethod(process)


def _manage_read(module: ModuleType, *, manage: Callable[[Any], None]) -> None:
    original = getattr(module, "safe_open", None)
    if original is None or getattr(original, "spillway_manages", False):
        return

    @functools.wraps(original, updated=())
    def safe_open(*arguments: Any, **options: Any) -> Any:
        return _ManagedFile(original(*arguments, **options), manage)

    safe_open.spillway_manages = True  # type: ignore[attr-defined]
    module.safe_open = safe_open  # type: ignore[attr-defined]


class _ManagedFile:
    """A safetensors file, from which each tensor is read by itself."""

    def __init__(self, opened: Any, manage: Callable[[Any], None]) -> None:
        self._opened = opened
        self._manage = manage

    def __enter__(self) -> _ManagedFile:
        self._opened.__enter__()
        return self

    def __exit__(self, *error: Any) -> Any:
        return self._opened.__exit__(*error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._opened, name)

    def get_tensor(self, name: str) -> Any:
        tensor = self._opened.get_tensor(name)
        if getattr(tensor, "is_cuda", False):
            self._manage(tensor)
        return tensor

    def get_tensors(self) -> dict[str, Any]:
        return {name: self.get_tensor(name) for name in self._opened.offset_keys()}


def _manage_weights(module: ModuleType, *, manage: Callable[[Any], None]) -> None:
    original = getattr(module, "_materialize_copy", None)
    if original is None:
        return

    @functools.wraps(original)
    def materialize(*arguments: Any, **options: Any) -> Any:
        tensor = original(*arguments, **options)
        if tensor.is_cuda:
            manage(tensor)
        return tensor

    module._materialize_copy = materialize  # type: ignore[attr-defined]


def _reserve_nothing(module: ModuleType) -> None:
    """It would allocate as many bytes as the model has, to load faster with PyTorch's own allocator."""
    changed: Any = module
    if hasattr(changed, "caching_allocator_warmup"):
        changed.caching_allocator_warmup = lambda *_arguments, **_options: None
