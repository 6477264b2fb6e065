# SPDX-License-Identifier: Apache-2.0
"""The comparison of variants: a difference of one bit or one call shows."""

from __future__ import annotations

from typing import Any

import pytest
from spillway.demo import compare, report
from spillway.demo.config import VariantConfig

CONFIG = VariantConfig(None, "spillway", "emulated", 2, 1, "small", None)


def result(
    ratio: float | None, loss: float = 1.5, gradients: str = "aa", syncs: int = 7, own: int = 0
) -> dict:
    step = {"loss": loss, "gradients": gradients, "ms": 1.0, **report.nothing_offloaded()}
    return {
        "ratio": ratio,
        "device_name": "emulated GPU",
        "cuda": "13.0",
        "parameters": 1,
        "peak_device_bytes": 1,
        "peak_allocated_bytes": 1,
        "emulator_peak_bytes": 1,
        "unordered": 0,
        "steps": [step, step],
        "steady": {"emulator": {"host_syncs": syncs}, "spillway": {"host_syncs": own}},
        "memory": [],
        **report.no_totals(),
    }


def variant(other: dict[str, Any]) -> dict[str, Any]:
    return compare.document(CONFIG, [result(None), other], [])["variants"][1]


def test_equal_variants_are_equal() -> None:
    assert variant(result(1.0))["losses_equal_plain"]
    assert variant(result(1.0))["grads_equal_plain"]


def test_last_bit_of_a_loss_counts() -> None:
    assert not variant(result(1.0, loss=1.5000000000000002))["losses_equal_plain"]


def test_gradients_count_where_losses_are_equal() -> None:
    different = variant(result(1.0, gradients="ab"))

    assert different["losses_equal_plain"]
    assert not different["grads_equal_plain"]


def test_synchronizations_are_those_beyond_plain() -> None:
    assert variant(result(1.0, syncs=9))["steady_host_syncs"] == 2


def test_spillways_own_counter_counts_where_the_emulator_saw_nothing() -> None:
    assert variant(result(1.0, own=3))["steady_host_syncs"] == 3


def test_run_too_short_for_a_steady_step_claims_nothing() -> None:
    short = {**result(1.0), "steady": None}

    assert variant(short)["steady_host_syncs"] is None


def test_failed_variant_states_how(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare.launch, "environment", lambda _emulate: {"PATH": "/usr/bin"})

    with pytest.raises(compare.VariantFailed, match="variant plain: "):
        compare.run_variant(CONFIG, lambda _step: None)
