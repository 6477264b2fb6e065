# SPDX-License-Identifier: Apache-2.0
"""Warns of a job's budget that was exceeded outside of the steps whose activations are recorded: in an
evaluation, or in steps that save nothing but model state."""

from __future__ import annotations

import atexit
import functools
import warnings

from spillway._load import glue
from spillway._operator_need import largest_need
from spillway._optimizer_hooks import on_steps
from spillway.budget_error import level_of_program, reported_excess
from spillway.emulator import is_dry_run
from spillway.report.sizes import size
from spillway.settings import setting_of

__all__ = ["start"]


@functools.cache
def start() -> None:
    """From now on, after each optimizer's step and at the end of the process. A dry run's page has it."""
    if is_dry_run():
        return
    on_steps(after=lambda _: _warn())
    atexit.register(_warn)


def _warn() -> None:
    import torch

    if not torch.cuda.is_initialized() or glue().budget_missed():  # which a step reports
        return
    for device in range(torch.cuda.device_count()):
        found = glue().largest_budget_excess(device)
        budget = glue().job_budget(device)
        if found is None or not budget:
            continue
        reported = reported_excess.get(device)
        if found["needed"] <= (budget if reported is None else reported + reported // 16):
            continue
        need = largest_need(device)
        assert need is not None
        reported_excess[device] = need.needed
        warnings.warn(
            f"budget {size(budget)} was exceeded: the job needed {size(need.needed)} on GPU {device}. "
            f"{need}. Use a smaller batch, a shorter sequence or --budget {setting_of(need.budget)}.",
            RuntimeWarning,
            stacklevel=level_of_program(),
        )
