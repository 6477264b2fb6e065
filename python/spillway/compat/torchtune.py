# SPDX-License-Identifier: Apache-2.0
"""torchtune's names and signatures: replace the same names of ``torchtune.training`` by these."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spillway import activation_offloading
from spillway.activation_offloading import NoOpManager

if TYPE_CHECKING:
    import torch

__all__ = ["NoOpManager", "OffloadActivations", "get_act_offloading_ctx_manager"]


class OffloadActivations(activation_offloading.OffloadActivations):
    """``spillway.compat.OffloadActivations`` with its last two arguments in torchtune's order."""

    def __init__(
        self,
        use_pin_memory: bool = True,
        use_streams: bool = True,
        max_fwd_stash_size: int = 5,
        min_offload_size: int = 1024,
    ) -> None:
        super().__init__(use_pin_memory, use_streams, min_offload_size, max_fwd_stash_size)


def get_act_offloading_ctx_manager(
    model: torch.nn.Module, enable_activation_offloading: bool, use_streams: bool = True
) -> activation_offloading.OffloadActivations | NoOpManager:
    """See ``spillway.compat.get_act_offloading_ctx_manager``: the second argument is its ``enabled``."""
    return activation_offloading.get_act_offloading_ctx_manager(
        model, use_streams=use_streams, enabled=enable_activation_offloading
    )
