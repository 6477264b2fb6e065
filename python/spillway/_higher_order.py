# SPDX-License-Identifier: Apache-2.0
"""Higher-order operators, which PyTorch dispatches in Python: `cond`, `flex_attention` and others."""

from __future__ import annotations

import functools
from typing import Any

from spillway._load import glue

__all__ = ["pass_through"]


@functools.cache
def pass_through() -> None:
    """Let these operators ignore Spillway's dispatch keys, for which they have no fallback. The operators
    that they run have one."""
    import torch
    from torch import _ops

    key_of: Any = torch._C.DispatchKey
    for key in map(key_of, glue().dispatch_keys()):
        _ops._HIGHER_ORDER_OP_DEFAULT_FALLTHROUGH_DISPATCH_KEYS.append(key)
        for operator in _ops._higher_order_ops.values():
            operator.fallthrough(key)
