# SPDX-License-Identifier: Apache-2.0
"""Scripts that know nothing of Spillway, under `spillway run` and without: the same words, the same end."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import under_spillway

TRAINING = (
    "amp_grad_scaler",
    "checkpointing",
    "compiled",
    "crash",
    "cuda_graphs",
    "data_loader_workers",
    "ddp",
    "fork_after_cuda",
    "gradient_accumulation",
    "lightning_trainer",
    "lora",
    "notebook",
    "plain_loop",
    "starts_others",
    "terminated",
    "transformers_trainer",
)
ENDS_WITH = {"crash": 1, "terminated": -15}


@pytest.mark.parametrize("script", TRAINING)
def test_a_script_trains_the_same_and_moves_half(script: str, tmp_path: Path) -> None:
    plain = under_spillway(script, tmp_path)
    ours = under_spillway(script, tmp_path, "--ratio", "0.5", "--schedule", "late")
    assert plain.status == ENDS_WITH.get(script, 0), plain.stderr
    assert (ours.status, ours.stdout) == (plain.status, plain.stdout), ours.stderr
    assert plain.stdout.count("0x") >= 3
    if script != "ddp":  # torchrun's own words have times
        assert ours.stderr == plain.stderr
    assert max(ours.moved) > 0
    assert max(plain.moved) == 0


def test_inference_stays_as_it_is(tmp_path: Path) -> None:
    plain = under_spillway("inference", tmp_path)
    ours = under_spillway("inference", tmp_path, "--ratio", "1")
    assert plain.status == 0, plain.stderr
    assert (ours.status, ours.stdout, ours.stderr) == (0, plain.stdout, plain.stderr)
    assert len(plain.stdout.splitlines()) == 6


@pytest.mark.parametrize("script", ["gradient_accumulation", "lora", "plain_loop"])
def test_every_access_is_ordered(script: str, tmp_path: Path) -> None:
    ours = under_spillway(script, tmp_path, "--ratio", "1", "--schedule", "late", "--check")
    assert (ours.status, ours.stderr.splitlines()[-1]) == (0, "spillway-check: 0 reports"), ours.stderr
    assert max(ours.moved) > 0
