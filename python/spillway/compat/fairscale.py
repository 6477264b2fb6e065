# SPDX-License-Identifier: Apache-2.0
"""FairScale's names: replace the same names of ``fairscale.nn`` and ``fairscale.nn.checkpoint`` by these."""

from __future__ import annotations

from spillway.checkpointing import (
    checkpoint_wrapper,
    disable_checkpointing,
    is_checkpointing,
    is_recomputing,
)

__all__ = ["checkpoint_wrapper", "disable_checkpointing", "is_checkpointing", "is_recomputing"]
