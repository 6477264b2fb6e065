# SPDX-License-Identifier: Apache-2.0
"""The text of a BudgetError: the need by class of memory, and what to do."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from spillway import BudgetError
from spillway._memory_breakdown import MemoryBreakdown

GIB, MIB = 2**30, 2**20
NEED = MemoryBreakdown(
    parameters=15 * GIB,
    gradients=14 * GIB,
    optimizer_states=30 * GIB,
    activations=GIB,
    other=512 * MIB,
)
UNKNOWN = dataclasses.replace(NEED, parameters=None, gradients=None, optimizer_states=None)
SAID = (
    "budget 40.0 GiB is too small: step 2 (first saved tensor: [8, 1024]) needs 60.5 GiB (parameters 15.0 "
    "GiB, gradients 14.0 GiB, optimizer states 30.0 GiB, activations in use at the peak 1.0 GiB, other 512.0 "
    "MiB, such as inputs, workspaces and temporaries, whose sizes `spillway dry-run` shows) on GPU 0, "
    "although all of its activations were offloaded or recomputed. Use a smaller batch, a shorter sequence, "
    '--budget 61GiB (budget="61GiB")'
)
EXCEED = '--over-budget warn (over_budget="warn") to exceed the budget'


def error(**changed: Any) -> BudgetError:
    values = {"budget": 40 * GIB, "smallest": NEED.total, "step": 2, "shape": "[8, 1024]", "breakdown": NEED}
    return BudgetError(0, **{**values, "capacity": 80 * GIB, **changed})


def test_an_error_names_each_class_with_its_size_and_what_to_do() -> None:
    assert str(error()) == f"{SAID}, or {EXCEED}."


def test_a_warning_does_not_advise_to_be_warned() -> None:
    said = error().warning()
    assert said == SAID.replace("a shorter sequence, --budget", "a shorter sequence, or --budget") + "."
    assert "over_budget" not in error().excess()


@pytest.mark.parametrize("text", [str, BudgetError.warning], ids=["error", "warning"])
def test_a_budget_that_the_gpu_does_not_have_is_not_advised(text: Any) -> None:
    said = text(error(capacity=48 * GIB))
    assert "--budget" not in said
    assert "Use a smaller batch" in said


def test_without_host_memory_the_error_does_not_claim_that_all_was_offloaded() -> None:
    said = str(error(host_memory_short=True))
    assert "on GPU 0, because no more host memory could be pinned for its activations. Use a larger" in said
    assert "offloaded or recomputed" not in said


def test_what_the_program_keeps_on_the_gpu_is_named() -> None:
    assert "keep_on_device, which keeps 2.0 GiB" in str(error(kept=2 * GIB))
    assert "Use no --keep-model-state, so that model state leaves too, a smaller" in str(
        error(keeps_model_state=True)
    )


def test_a_lower_bound_is_called_one() -> None:
    said = str(error(lower_bound=True))
    assert "needs at least 60.5 GiB (" in said
    assert ". This is a lower bound: " in said
    assert '--budget 61GiB or more (budget="61GiB")' in said


def test_classes_that_are_unknown_are_not_named() -> None:
    said = str(error(breakdown=UNKNOWN, begin=59 * GIB))
    assert "(activations in use at the peak 1.0 GiB, other 512.0 MiB, such as inputs, workspaces" in said
    assert "; 59.0 GiB were allocated before" in said
    assert not any(name in said for name in ("parameters", "gradients", "states "))


def test_the_classes_add_up() -> None:
    assert NEED.total == 60 * GIB + 512 * MIB
    assert UNKNOWN.total == GIB + 512 * MIB
