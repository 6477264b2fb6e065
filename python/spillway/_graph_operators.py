# SPDX-License-Identifier: Apache-2.0
"""The operators `spillway::save` and `spillway::load` for PyTorch's compiler: see
torch_glue/compiled/graph_operators.h."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from spillway._load import glue

if TYPE_CHECKING:
    import torch

__all__ = ["fake_handle", "operators"]


def fake_handle(tensor: torch.Tensor) -> torch.Tensor:
    """Of a fake tensor. It has the strides that the tensor has got: see graph_operators.h."""
    import torch

    return torch.empty_strided([1] * tensor.dim(), tensor.stride(), dtype=torch.int64, device="cpu")


@functools.cache
def operators() -> tuple[torch._ops.OpOverload, torch._ops.OpOverload]:
    """`save` and `load`, defined by the first call."""
    import torch

    glue().define_graph_operators()

    def load(handle: torch.Tensor, size: Any, dtype: Any, device: Any) -> torch.Tensor:
        return torch.empty_strided(size, handle.stride(), dtype=dtype, device=device)

    torch.library.register_fake("spillway::save", fake_handle)
    torch.library.register_fake("spillway::load", load)
    return torch.ops.spillway.save.default, torch.ops.spillway.load.default
