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

``spillway.memory`` has limits, usage by tag, eviction and traces; ``spillway.tags`` has automatic tags;
``spillway.compat`` has the interfaces of torchtune, TRL and FairScale; ``spillway.emulator`` has checks for
the emulated GPU; ``spillway.statistics`` has the types of :func:`stats`.

Importing this package imports no torch; that happens on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spillway import compat as compat
from spillway import emulator as emulator
from spillway import memory as memory
from spillway import statistics as statistics
from spillway import tags as tags
from spillway._microbatches import microbatches
from spillway._pause import pause, resume
from spillway._recomputable import recomputable
from spillway._recompute import recompute
from spillway._tag import tag
from spillway.allocator import use_allocator
from spillway.budget import offload
from spillway.budget_error import BudgetError
from spillway.checkpointing import checkpoint, checkpoint_wrapper
from spillway.cpu_offload import CPUOffload, step
from spillway.planning import explain
from spillway.statistics import stats

if TYPE_CHECKING:
    from spillway.offload_model import OffloadModel

__all__ = [
    "BudgetError",
    "CPUOffload",
    "OffloadModel",
    "__version__",
    "checkpoint",
    "checkpoint_wrapper",
    "explain",
    "microbatches",
    "offload",
    "pause",
    "recomputable",
    "recompute",
    "resume",
    "stats",
    "step",
    "tag",
    "use_allocator",
]

__version__ = "0.1.0"

_MODULES = ("compat", "emulator", "memory", "statistics", "tags")


def __dir__() -> list[str]:
    return sorted([*__all__, *_MODULES])


def __getattr__(name: str) -> Any:
    # It is a module of torch's, and importing this package imports no torch.
    if name == "OffloadModel":
        from spillway.offload_model import OffloadModel

        return OffloadModel
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
