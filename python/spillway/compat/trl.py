# SPDX-License-Identifier: Apache-2.0
"""TRL's names and signatures: replace ``trl.models.activation_offloading`` by ``spillway.compat.trl``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spillway import activation_offloading
from spillway.activation_offloading import NoOpManager, OffloadActivations

if TYPE_CHECKING:
    import torch

__all__ = ["NoOpManager", "OffloadActivations", "get_act_offloading_ctx_manager"]


def get_act_offloading_ctx_manager(
    model: torch.nn.Module,
    use_pin_memory: bool = True,
    use_streams: bool = True,
    min_offload_size: int = 1024,
    max_fwd_stash_size: int = 5,
    warn_if_no_head: bool = True,
) -> OffloadActivations | NoOpManager:
    """See ``spillway.compat.get_act_offloading_ctx_manager``."""
    return activation_offloading.get_act_offloading_ctx_manager(
        model, use_pin_memory, use_streams, min_offload_size, max_fwd_stash_size, warn_if_no_head
    )
