# SPDX-License-Identifier: Apache-2.0
"""Scripts that know nothing of Spillway, under `spillway run` and without: the same words, the same end."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from conftest import EMULATED, under_spillway

# Each with the bytes of the largest storage that it saves: the result of its widest layer.
TRAINING = {
    "amp_grad_scaler": 64 * 256 * 4,
    "checkpointing": 64 * 96 * 4,
    "compiled": 64 * 128 * 4,
    "crash": 64 * 128 * 4,
    "cuda_graphs": 64 * 128 * 4,
    "data_loader_workers": 16 * 128 * 4,
    "ddp": 64 * 128 * 4,
    "fork_after_cuda": 64 * 128 * 4,
    "gradient_accumulation": 8 * 16 * 64 * 4,
    "lightning_trainer": 16 * 128 * 4,
    "lora": 64 * 256 * 4,
    "notebook": 64 * 128 * 4,
    "plain_loop": 16 * 16 * 16 * 16 * 4,
    "starts_others": 64 * 128 * 4,
    "terminated": 64 * 128 * 4,
    "transformers_trainer": 4 * 24 * 64 * 4,
}
# These save a batch of 64 × 32, of which the script holds another name, and twice 64 × 128.
ALIKE = ("crash", "cuda_graphs", "fork_after_cuda", "notebook", "starts_others", "terminated")
ENDS_WITH = {"crash": 1, "terminated": -15}
LATE = ("--schedule", "late") if EMULATED else ()


def without_pids(text: str) -> str:
    """From Python 3.12 on a fork beside threads is warned of, with the process's number."""
    return re.sub(r"pid=\d+", "pid", text)


@pytest.mark.parametrize("script", TRAINING)
def test_a_script_trains_the_same_and_moves_half(script: str, tmp_path: Path) -> None:
    if script == "ddp" and not EMULATED:
        pytest.skip("needs two devices, which the emulated GPU always has")
    if script == "notebook":
        pytest.importorskip("jupyter_client")
    plain = under_spillway(script, tmp_path)
    ours = under_spillway(script, tmp_path, "--ratio", "0.5", *LATE)
    assert plain.status == ENDS_WITH.get(script, 0), plain.stderr
    assert (ours.status, ours.stdout) == (plain.status, plain.stdout), ours.stderr
    assert plain.stdout.count("0x") >= 3
    if script != "ddp":  # torchrun's own words have times
        assert without_pids(ours.stderr) == without_pids(plain.stderr)
    assert max(plain.moved) == 0
    all_steps = zip(ours.moved, ours.offloadable, ours.kept, strict=True)
    steps = [(moved, offloadable) for moved, offloadable, kept in all_steps if offloadable and not kept]
    assert len(steps) >= 3
    # On a real GPU cuDNN keeps more for an LSTM than any layer's result has.
    largest = TRAINING[script] if EMULATED or script != "gradient_accumulation" else max(ours.offloadable)
    for moved, offloadable in steps:  # never above the ratio, and less than one storage below it
        assert 0 <= offloadable // 2 - moved < largest, steps
    if script in ALIKE:  # once it is known what each storage is worth
        assert set(steps[1:]) == {(64 * 128 * 4, 64 * 32 * 4 + 2 * 64 * 128 * 4)}


def test_inference_stays_as_it_is(tmp_path: Path) -> None:
    plain = under_spillway("inference", tmp_path)
    ours = under_spillway("inference", tmp_path, "--ratio", "1")
    assert plain.status == 0, plain.stderr
    assert (ours.status, ours.stdout, ours.stderr) == (0, plain.stdout, plain.stderr)
    assert len(plain.stdout.splitlines()) == 6


@pytest.mark.skipif(not EMULATED, reason="the order checker is the emulated GPU's")
@pytest.mark.parametrize("script", ["gradient_accumulation", "lora", "plain_loop"])
def test_every_access_is_ordered(script: str, tmp_path: Path) -> None:
    ours = under_spillway(script, tmp_path, "--ratio", "1", "--schedule", "late", "--check")
    assert (ours.status, ours.stderr.splitlines()[-1]) == (0, "spillway-check: 0 races"), ours.stderr
    assert ours.moved == ours.offloadable
    assert min(ours.moved) > 0
