# SPDX-License-Identifier: Apache-2.0
"""Interfaces of other projects: torchtune, TRL, Axolotl (activation offloading), FairScale (checkpointing).

Where two projects disagree on a signature, ``spillway.compat.torchtune``, ``spillway.compat.trl`` and
``spillway.compat.fairscale`` have each project's own. Here, TRL's apply.
"""

from spillway.activation_offloading import (
    ActivationOffloadingMixin,
    NoOpManager,
    OffloadActivations,
    get_act_offloading_ctx_manager,
    get_lora_act_offloading_ctx_manager,
)
from spillway.checkpointing import disable_checkpointing, is_checkpointing, is_recomputing

__all__ = [
    "ActivationOffloadingMixin",
    "NoOpManager",
    "OffloadActivations",
    "disable_checkpointing",
    "get_act_offloading_ctx_manager",
    "get_lora_act_offloading_ctx_manager",
    "is_checkpointing",
    "is_recomputing",
]
