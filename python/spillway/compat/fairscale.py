# SPDX-License-Identifier: Apache-2.0
"""FairScale's names: replace the same names of ``fairscale.nn`` and ``fairscale.nn.checkpoint`` by these."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spillway.checkpointing import (
    checkpoint_wrapper,
    disable_checkpointing,
    is_checkpointing,
    is_recomputing,
)

if TYPE_CHECKING:
    from spillway.offload_model import OffloadModel

__all__ = [
    "OffloadModel",
    "checkpoint_wrapper",
    "disable_checkpointing",
    "is_checkpointing",
    "is_recomputing",
]


def __getattr__(name: str) -> Any:
    import spillway

    if name == "OffloadModel":
        return spillway.OffloadModel
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
