# SPDX-License-Identifier: Apache-2.0
"""Train with more memory than the GPU has.

Saved activations wait in pinned host memory and are fetched bit for bit::

    import spillway

    spillway.use_allocator()  # optional: before anything touches the GPU

    for batch in batches:
        with spillway.CPUOffload(offload_ratio=0.5):
            loss = model(batch)
        loss.backward()
        optimizer.step()

    print(spillway.stats()["tags"][""]["last"])

Importing this package imports no torch; that happens on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spillway._heads import keep_on_device
from spillway.activation_offloading import (
    ActivationOffloadingMixin,
    NoOpManager,
    OffloadActivations,
    get_act_offloading_ctx_manager,
    get_lora_act_offloading_ctx_manager,
)
from spillway.allocator import library_path, pluggable_allocator, use_allocator
from spillway.budget_error import BudgetError
from spillway.checkpointing import (
    checkpoint,
    checkpoint_wrapper,
    disable_checkpointing,
    is_checkpointing,
    is_recomputing,
)
from spillway.cpu_offload import CPUOffload, step
from spillway.limits import memory_limit, set_memory_limit
from spillway.microbatches import microbatches
from spillway.pause import allow_eviction, forbid_eviction, pause, resident, resume
from spillway.roles import unwatch, watch
from spillway.statistics import stats
from spillway.summary import memory_by_tag, memory_summary
from spillway.tags import tag, tag_matches
from spillway.trace import read_trace, record_trace

# After all others: the module of the same name is imported by now, and the function takes its place.
from spillway.recompute import recompute  # isort: skip
from spillway.budget import offload  # isort: skip
from spillway.planning import explain  # isort: skip

if TYPE_CHECKING:
    from spillway.offload_model import OffloadModel

__all__ = [
    "ActivationOffloadingMixin",
    "BudgetError",
    "CPUOffload",
    "NoOpManager",
    "OffloadActivations",
    "OffloadModel",
    "__version__",
    "allow_eviction",
    "checkpoint",
    "checkpoint_wrapper",
    "disable_checkpointing",
    "explain",
    "forbid_eviction",
    "get_act_offloading_ctx_manager",
    "get_lora_act_offloading_ctx_manager",
    "is_checkpointing",
    "is_recomputing",
    "keep_on_device",
    "library_path",
    "memory_by_tag",
    "memory_limit",
    "memory_summary",
    "microbatches",
    "offload",
    "pause",
    "pluggable_allocator",
    "read_trace",
    "recompute",
    "record_trace",
    "resident",
    "resume",
    "set_memory_limit",
    "stats",
    "step",
    "tag",
    "tag_matches",
    "unwatch",
    "use_allocator",
    "watch",
]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # It is a module of torch's, and importing this package imports no torch.
    if name == "OffloadModel":
        from spillway.offload_model import OffloadModel

        return OffloadModel
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
