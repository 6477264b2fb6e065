# SPDX-License-Identifier: Apache-2.0
"""One small run of the demonstration from its command line to its files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

STEPS = 4
ARENA_PIECE = 8 << 20  # what pinned memory grows by at least
DOCUMENT = {"device": str, "device_name": str, "versions": dict, "command": list, "variants": list}
VARIANT = {
    "name": str,
    "ratio": float,
    "peak_device_bytes": int,
    "peak_allocated_bytes": int,
    "saved_bytes": int,
    "offloaded_bytes": int,
    "fetched_bytes": int,
    "host_peak_bytes": int,
    "step_ms": list,
    "losses": list,
    "losses_equal_plain": bool,
    "grads_equal_plain": bool,
    "steady_driver_allocs": int,
    "steady_host_syncs": int,
    "skipped": dict,
    "memory": list,
}


class Run:
    def __init__(self, folder: Path) -> None:
        self.picture = folder / "demo.png"
        json_file = folder / "demo.json"
        command = [sys.executable, "-m", "spillway.demo", "--size", "small", "--device", "emulated"]
        command += ["--steps", str(STEPS), "--json", str(json_file), "--picture", str(self.picture)]
        self.done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert self.done.returncode == 0, self.done.stdout + self.done.stderr
        self.document: dict[str, Any] = json.loads(json_file.read_text())


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return Run(tmp_path_factory.mktemp("demo"))


def types_of(found: dict[str, Any], expected: dict[str, type]) -> dict[str, type]:
    return {key: type(found.get(key)) for key in expected}


def test_document_has_every_key_with_its_type(run: Run) -> None:
    assert types_of(run.document, DOCUMENT) == DOCUMENT
    assert [types_of(variant, VARIANT) for variant in run.document["variants"]] == [VARIANT] * 3


def test_variants_are_plain_then_the_ratio_then_all(run: Run) -> None:
    assert [variant["ratio"] for variant in run.document["variants"]] == [0.0, 0.5, 1.0]
    assert run.document["variants"][0]["name"] == "plain"


def test_every_step_is_listed(run: Run) -> None:
    lengths = [(len(variant["losses"]), len(variant["step_ms"])) for variant in run.document["variants"]]

    assert lengths == [(STEPS, STEPS)] * 3


def test_loss_falls(run: Run) -> None:
    losses = run.document["variants"][0]["losses"]

    assert losses[-1] < losses[0]


def test_losses_and_gradients_are_plains_bit_for_bit(run: Run) -> None:
    plain, *others = run.document["variants"]

    assert [variant["losses"] for variant in others] == [plain["losses"]] * 2
    assert [variant["grads_equal_plain"] for variant in others] == [True, True]


def test_all_that_can_move_moves_and_is_fetched_at_ratio_one(run: Run) -> None:
    variant = run.document["variants"][2]

    assert variant["saved_bytes"] > 0
    assert variant["offloaded_bytes"] == variant["fetched_bytes"] == variant["saved_bytes"]


def test_half_moves_at_most_half_and_something(run: Run) -> None:
    variant = run.document["variants"][1]

    assert 0 < variant["offloaded_bytes"] <= variant["saved_bytes"] // 2


def test_plain_variant_moves_nothing(run: Run) -> None:
    plain = run.document["variants"][0]

    assert [plain[key] for key in ("saved_bytes", "offloaded_bytes", "host_peak_bytes")] == [0, 0, 0]


def test_little_more_is_pinned_than_is_offloaded(run: Run) -> None:
    for variant in run.document["variants"][1:]:
        slack = max(variant["offloaded_bytes"] // 4, ARENA_PIECE)
        assert variant["offloaded_bytes"] < variant["host_peak_bytes"] <= variant["offloaded_bytes"] + slack


def test_live_peak_falls_with_the_ratio(run: Run) -> None:
    peaks = [variant["peak_allocated_bytes"] for variant in run.document["variants"]]

    assert peaks[0] > peaks[1] > peaks[2]


def test_memory_is_noted_at_the_same_places_in_every_variant(run: Run) -> None:
    places = [
        [(note["phase"], note["where"]) for note in variant["memory"]] for variant in run.document["variants"]
    ]

    assert places[0] == places[1] == places[2]
    assert {phase for phase, _ in places[0]} == {"start", "forward", "backward", "optimizer"}


def test_output_states_that_the_gpu_is_emulated(run: Run) -> None:
    assert run.document["device"] == "emulated"
    assert "emulated GPU" in run.done.stdout


def test_picture_is_a_png(run: Run) -> None:
    assert run.picture.read_bytes().startswith(b"\x89PNG\r\n")
