# SPDX-License-Identifier: Apache-2.0
"""Warns once if no host memory can be pinned for model state that has to leave the GPU."""

from __future__ import annotations

import warnings

from spillway._load import glue
from spillway.report.sizes import size

__all__ = ["warn_of_host_shortage"]


def warn_of_host_shortage() -> None:
    """At the end of a step. The first shortage is reported; nothing is lost by it."""
    found = glue().take_host_shortage()
    if found is None:
        return
    from spillway.budget_error import level_of_program

    stats = glue().stats()
    pinned = sum(each["host"]["pinned_bytes"] for each in stats["devices"].values())
    steps = ((each["running"], each["last"]) for each in stats["tags"].values())
    activations = sum(max(step["offloaded_bytes"] for step in pair) for pair in steps)
    state = found["model_state"]
    total = sum(state.values())
    classes = ", ".join(f"{name.replace('_', ' ')} {size(each)}" for name, each in state.items() if each)
    warnings.warn(
        f"model state stays on the GPU, because the job needs up to {size(total + activations)} of pinned "
        f"host memory (model state {size(total)} ({classes}), activations {size(activations)}) and no more "
        f"than {size(pinned)} can be pinned. {found['why']} Steps may exceed the budget. Use a larger limit "
        "(docs/transfer.md), a machine with more memory, or a larger budget.",
        RuntimeWarning,
        stacklevel=level_of_program(),
    )
