# SPDX-License-Identifier: Apache-2.0
"""The operators `spillway::save`, `load` and `keep` for PyTorch's compiler: see
torch_glue/compiled/graph_operators.h."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

from spillway._load import glue

if TYPE_CHECKING:
    import torch

__all__ = ["fake_handle", "operators"]


class Operators(NamedTuple):
    save: torch._ops.OpOverload
    load: torch._ops.OpOverload
    keep: torch._ops.OpOverload


def fake_handle(tensor: torch.Tensor) -> torch.Tensor:
    """Of a fake tensor. It has the strides that the tensor has got: see graph_operators.h."""
    import torch

    return torch.empty_strided([1] * tensor.dim(), tensor.stride(), dtype=torch.int64, device="cpu")


@functools.cache
def operators() -> Operators:
    """Defined by the first call."""
    import torch

    glue().define_graph_operators()

    def load(handle: torch.Tensor, size: Any, dtype: Any, device: Any) -> torch.Tensor:
        return torch.empty_strided(size, handle.stride(), dtype=dtype, device=device)

    torch.library.register_fake("spillway::save", fake_handle)
    torch.library.register_fake("spillway::keep", fake_handle)
    torch.library.register_fake("spillway::load", load)
    known = torch.ops.spillway
    return Operators(known.save.default, known.load.default, known.keep.default)
