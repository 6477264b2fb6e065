# SPDX-License-Identifier: Apache-2.0
"""Loading of models by libraries that bring all weights to the GPU before a module owns them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from spillway._after_import import after_import

__all__ = ["start"]


def start(manage: Callable[[Any], None]) -> None:
    """From now on, `manage(tensor)` is called for each weight when it arrives on the GPU."""
    after_import("transformers.core_model_loading", functools.partial(_manage_weights, manage=manage))
    after_import("transformers.modeling_utils", _reserve_nothing)


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
