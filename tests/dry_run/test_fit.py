# SPDX-License-Identifier: Apache-2.0
"""`spillway fit`: each combination is run, and the fastest one that fits is named."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path
from typing import Any

import job
import pytest
from conftest import JOB
from launched import spillway

LAYERS, WAYS = ("2", "6"), ("plain", "budget=auto")
SAMPLES = 3.0
# Of six layers, the weights and what AdamW has of them fit, and half of the activations.
MEMORY = 6 * job.WIDTH**2 * 2 * 4 + 6 * job.ROWS * job.WIDTH * 2 + (256 << 20)


def profile(folder: Path, name: str, memory: str) -> str:
    file = folder / f"{name}.toml"
    file.write_text(f'name = "{name}"\nlike = "h200"\nmemory = "{memory}"\ncuda_context = "0B"\n')
    return str(file)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[dict[str, Any]], str, list[str]]:
    folder = tmp_path_factory.mktemp("fit")
    gpus = [profile(folder, "large", "64GiB"), profile(folder, "small", f"{MEMORY}B")]
    output = folder / "fit.json"
    options = ["--vary", f"layers={','.join(LAYERS)}", "--ways", ",".join(WAYS), "--json", str(output)]
    options += ["--samples-per-step", f"{SAMPLES}*layers", "--steps", "8"]
    result = spillway("fit", *gpus, *options, "--", sys.executable, JOB, "{layers}", JOB_STEPS="9")
    assert result.returncode == 0, result.stderr
    assert result.stdout == ""
    runs: list[dict[str, Any]] = json.loads(output.read_text())["runs"]
    return runs, result.stderr, gpus


def test_each_combination_is_run_with_its_values(
    found: tuple[list[dict[str, Any]], str, list[str]],
) -> None:
    runs, _, gpus = found
    combinations = [(run["profile"], run["values"]["layers"], run["alternative"]) for run in runs]
    assert sorted(combinations) == sorted(itertools.product(gpus, LAYERS, WAYS))
    peaks = {
        run["values"]["layers"]: run["processes"][0]["devices"][0]["peak_allocated_bytes"]
        for run in runs
        if run["profile"] == gpus[0] and run["alternative"] == "plain"
    }
    assert peaks["6"] - peaks["2"] >= 4 * 2 * job.ROWS * job.WIDTH * 2


def test_what_does_not_fit_plain_fits_with_a_budget(
    found: tuple[list[dict[str, Any]], str, list[str]],
) -> None:
    runs, _, gpus = found
    fits = {(run["profile"], run["values"]["layers"], run["alternative"]): run["fits"] for run in runs}
    assert [place for place, fit in fits.items() if not fit] == [(gpus[1], "6", "plain")]
    (short,) = [run for run in runs if not run["fits"]]
    assert short["limited_by"] == "memory: activations"
    assert short["samples_per_second"] is None


def test_the_fastest_of_each_gpu_comes_first_and_is_named(
    found: tuple[list[dict[str, Any]], str, list[str]],
) -> None:
    runs, printed, gpus = found
    for gpu in gpus:
        of_gpu = [run for run in runs if run["profile"] == gpu]
        rates = [run["samples_per_second"] or 0 for run in of_gpu]
        assert rates == sorted(rates, reverse=True)
        for run in of_gpu:
            step = run["processes"][0]["steps"]["median_ms"]
            if run["fits"]:
                samples = SAMPLES * int(run["values"]["layers"])
                assert run["samples_per_second"] == pytest.approx(samples / step * 1e3, rel=1e-12)
        best = of_gpu[0]
        run_by = "spillway run --budget auto -- " if best["alternative"] == "budget=auto" else ""
        (line,) = [line for line in printed.splitlines() if line.startswith(f"{gpu}: ")]
        assert line.startswith(f"{gpu}: {run_by}")
        assert line.endswith(f" {best['values']['layers']}")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "expected a profile before the command"),
        (("h200", "h200"), "h200: is given twice"),
        (("h200", "--vary", "batch"), "--vary=batch: expected NAME=VALUE"),
        (("h200", "--vary", "batch=1,,2"), "expected NAME=VALUE"),
        (("h200", "--vary", "batch=1"), "is not in the command. Put {batch} where"),
        (("h200", "--vary", "layers=1", "--vary", "layers=2"), "names layers twice"),
        (("h200", "--vary", "layers=1,x", "--samples-per-step", "layers"), "expected numbers above 0"),
        (("h200", "--ways", "fast"), "--ways=fast: expected plain, checkpoint"),
        (("h200", "--steps", "0"), "--steps=0: expected an integer above 0"),
    ],
    ids=str,
)
def test_bad_usage_is_refused_before_anything_runs(arguments: tuple[str, ...], said: str) -> None:
    result = spillway("fit", *arguments, "--", sys.executable, JOB, "{layers}")
    assert result.returncode == 2
    assert said in result.stderr
    assert "GPU  " not in result.stderr


def test_without_a_run_that_fits_the_status_is_1(tmp_path: Path) -> None:
    tiny = profile(tmp_path, "tiny", "256MiB")
    result = spillway("fit", tiny, "--ways", "plain", "--steps", "1", "--", sys.executable, JOB)
    assert result.returncode == 1
    assert f"{tiny}: nothing fits" in result.stderr
