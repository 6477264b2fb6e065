# SPDX-License-Identifier: Apache-2.0
"""The ledger of predictions: what it claims, what is shown of it, and that it can be remade."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from bench.predictions import __main__ as command
from bench.predictions import ledger, running
from bench.predictions.cases import CASES, RATIOS
from bench.results import GIB, ROOT, RunFailed

CASE = {case.name: case for case in CASES}
WRITTEN = ledger.read()
same_torch = pytest.mark.skipif(
    torch.__version__.partition("+")[0] != WRITTEN["versions"]["torch"],
    reason="the ledger was made with another torch",
)


def predictions(**peaks_gib: float) -> dict[str, dict]:
    return {
        f"torchtune-3b-{name.replace('_', '-')}": {"peak_bytes": peak * GIB, "tokens_per_second": 7075}
        for name, peak in peaks_gib.items()
    }


def test_published_peaks_are_met_within_a_hundredth() -> None:
    errors = ledger.memory_errors(WRITTEN["predictions"])

    assert len(errors) == 15
    assert max(map(abs, errors.values())) <= 1.0


def test_ratios_of_times_are_those_that_were_published() -> None:
    found = {name: (known, predicted) for name, known, predicted in ledger.ratios(WRITTEN["predictions"])}

    assert set(found) == {name for name, _, _ in RATIOS}
    assert found["checkpoints to none"][0] == pytest.approx(9174 / 7210)
    for name, (known, predicted) in found.items():
        assert predicted == pytest.approx(known, rel=0.05), name


def test_eight_billion_parameters_take_little_of_the_host_whatever_keeps_the_activations() -> None:
    took = {
        name: each["here"] for name, each in WRITTEN["predictions"].items() if name.startswith("llama-8b-")
    }

    assert len(took) == 7
    for name, each in took.items():
        assert each["wall_seconds"] <= 2, name
        assert each["host_bytes"] <= 1.5 * GIB, name


def test_error_is_in_percent_of_the_truth() -> None:
    errors = ledger.memory_errors(predictions(packed=66.0, compile=25.5))

    assert errors == pytest.approx({"torchtune-3b-packed": 10.0, "torchtune-3b-compile": -50.0})
    assert ledger.middle(errors) == "30.0 % (2 published rows)"


def test_times_of_compiled_code_are_summed_up_apart() -> None:
    rows = {"packed": 7075 * 1.10, "compile": 8998 * 1.01, "chunked": 9174 * 1.03}
    found = {
        f"torchtune-3b-{name}": {"peak_bytes": 1, "tokens_per_second": rate} for name, rate in rows.items()
    }
    said = ledger.summary({"date": "today", "versions": {"torch": "2"}, "predictions": found})

    assert "of eager programs 10.0 % (1 published row), " in said
    assert "of compiled ones, whose kernels are modeled, 2.0 % (2 published rows)." in said


def test_program_that_fails_is_named_with_its_last_lines() -> None:
    broken = dataclasses.replace(CASE["llama-8b-plain"], arguments=("sideways",))

    with pytest.raises(RunFailed, match=r"(?s)llama-8b-plain: .*status 2:.*sideways"):
        running.run(broken, dry=True)


def test_a_case_without_its_package_names_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(running, "PEERS", tmp_path)

    assert running.missing(CASE["llama-8b-trl"]).startswith("trl is not in build/peers")
    assert running.missing(CASE["llama-8b-plain"]) == ""


@same_torch
@pytest.mark.parametrize("name", ["llama-8b-plain", "llama-8b-spillway"])
def test_prediction_comes_out_the_same_again(name: str) -> None:
    rows = command.score([CASE[name]], dry=True)["rows"]

    assert (rows[name]["memory_error"], rows[name]["time_error"]) == (0.0, 0.0)
    assert rows[name]["measured"]["host_bytes"] <= 1.5 * GIB


def test_score_leaves_out_what_was_predicted_for_another_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA GeForce GTX 980")

    assert command.score(list(CASES), dry=False) == {"device": "NVIDIA GeForce GTX 980", "rows": {}}


def test_unknown_case_is_refused() -> None:
    arguments = [sys.executable, "-m", "bench.predictions", "llama-9b"]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, cwd=ROOT)

    assert done.returncode == 2
    assert "llama-9b" in done.stderr


def test_every_case_is_predicted_by_the_command_that_it_has_now() -> None:
    written = {name: tuple(each["command"]) for name, each in WRITTEN["predictions"].items()}

    assert written == {case.name: case.command for case in CASES}
