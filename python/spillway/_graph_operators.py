# SPDX-License-Identifier: Apache-2.0
"""The operators `spillway::save` and `spillway::load` for PyTorch's compiler: see
torch_glue/compiled/graph_operators.h."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from spillway._load import glue

if TYPE_CHECKING:
    import torch

__all__ = ["operators"]


@functools.cache
def operators() -> tuple[torch._ops.OpOverload, torch._ops.OpOverload]:
    """`save` and `load`, defined by the first call."""
    import torch

    glue().define_graph_operators()

    def save(_tensor: torch.Tensor) -> torch.Tensor:
        return torch.empty((), dtype=torch.int64, device="cpu")

    def load(_handle: Any, size: Any, stride: Any, dtype: Any, device: Any) -> torch.Tensor:
        return torch.empty_strided(size, stride, dtype=dtype, device=device)

    torch.library.register_fake("spillway::save", save)
    torch.library.register_fake("spillway::load", load)
    return torch.ops.spillway.save.default, torch.ops.spillway.load.default
