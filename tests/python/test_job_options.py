# SPDX-License-Identifier: Apache-2.0
"""The options of `spillway run` for a job: what they set, and what stops it before it starts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from conftest import assert_nothing_starts, assert_refused, seen_by_command, settings_of, spillway


@pytest.mark.parametrize("options", [(), ("--ratio", "0.5")])
def test_a_job_needs_a_gpu_or_the_emulated_one(options: tuple[str, ...], tmp_path: Path) -> None:
    started = tmp_path / "started"
    result = spillway("run", *options, "--", "touch", started, CUDA_VISIBLE_DEVICES="")
    assert_refused(
        result,
        "spillway run: there is no GPU here: use spillway emulate or spillway dry-run, "
        "or see spillway doctor\n",
    )
    assert not started.exists()


def test_disabled_a_job_needs_no_gpu() -> None:
    result = spillway("run", "--ratio", "0.5", "--", "true", CUDA_VISIBLE_DEVICES="", SPILLWAY_DISABLE="1")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_options_of_a_job_become_its_settings(tmp_path: Path) -> None:
    env = seen_by_command(
        *("emulate", "--ratio", "0.5", "--tag-ratio", "mlp=0.8", "--tag-ratio", "attention.*=0.25"),
        *("--allocator", "torch", "--report", str(tmp_path / "out"), "--recompute"),
    )
    assert settings_of(env) == {
        "SPILLWAY_EMULATE": "1",
        "SPILLWAY_OFFLOAD_RATIO": "0.5",
        "SPILLWAY_TAG_RATIO": "mlp=0.8,attention.*=0.25",
        "SPILLWAY_ALLOCATOR": "torch",
        "SPILLWAY_RECOMPUTE": "1",
        "SPILLWAY_REPORT": str(tmp_path / "out"),
    }


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--budget", "20GB"], "--budget=20GB: expected a size such as 512MiB or 1.5GiB"),
        (
            ["--budget", "0.8"],
            "--budget=0.8: is less than 1MiB: give a unit, as in 20GiB, or a share, as in 80%",
        ),
        (["--budget", "1023.9KiB"], "--budget=1023.9KiB: is less than 1MiB: give a unit, as in 20GiB"),
        (["--operators"], "--operators: needs --report DIR"),
        (["--kernels", "3"], "--kernels: needs --report DIR"),
        (["--kernels", "3", "--report", "out"], "--kernels: needs a GPU: the emulated one has no kernels"),
        (["--kernels", "0"], "--kernels=0: expected an integer from 1 to 1000"),
        (["--budget", "1GiB", "--ratio", "1"], "--budget and --ratio: give one of them"),
        (["--ratio", "half"], "--ratio=half: expected a number from 0 to 1, such as 0.5"),
        (["--ratio", "1.01"], "--ratio=1.01: expected a number from 0 to 1"),
        (["--tag-ratio", "mlp"], "--tag-ratio=mlp: expected PATTERN=SHARE such as 'mlp=0.8'"),
        (["--tag-ratio", "a=1", "--tag-ratio", "a=0"], "--tag-ratio=a=1,a=0: a has two ratios"),
        (["--tag-ratio", ""], "--tag-ratio=: expected PATTERN=SHARE such as 'mlp=0.8'"),
        (["--report", ""], "--report=: expected a folder"),
        (["--report", "/proc/out"], "--report /proc/out: cannot be written: "),
        (["--report", f"{__file__}/out"], f"--report {__file__}/out: cannot be written: not a directory"),
        (["--report", "/proc"], "--report /proc: cannot be written: "),
        (["--report", __file__], f"--report={__file__}: is a file: name a folder"),
        (["--budget", "0%"], "--budget=0%: expected a share above 0% and at most 100%"),
        (["--budget", "all"], "--budget=all: expected a size"),
        (["--time-limit", "0.5"], "--time-limit=0.5: expected a number from 1 to 100"),
        (["--time-limit", "fast"], "--time-limit=fast: expected a number from 1 to 100"),
        (["--plans", "plans.json"], "--plans: needs --budget or --time-limit"),
        (
            ["--budget", "1GiB", "--plans", "/not/there/plans.json"],
            "--plans=/not/there/plans.json: expected a file",
        ),
        (["--time-limit", "1.1", "--ratio", "0.5"], "--time-limit and --ratio: give one of them"),
        (["--allocator", "mine"], "--allocator=mine: expected one of spillway, torch"),
    ],
)
def test_a_bad_option_of_a_job_is_one_line(tmp_path: Path, options: list[str], said: str) -> None:
    assert_nothing_starts(tmp_path / "started", options, said)


def test_a_budget_of_a_mebibyte_is_one() -> None:
    assert seen_by_command("emulate", "--budget", "1MiB")["SPILLWAY_BUDGET"] == "1MiB"


@pytest.mark.parametrize(
    ("options", "inherited", "said"),
    [
        (
            ["--budget", "1GiB"],
            {"SPILLWAY_OFFLOAD_RATIO": "0.5"},
            "--budget: SPILLWAY_OFFLOAD_RATIO=0.5 is in",
        ),
        (["--ratio", "0.5"], {"SPILLWAY_BUDGET": "1GiB"}, "--ratio: SPILLWAY_BUDGET=1GiB is in"),
        (
            [],
            {"SPILLWAY_BUDGET": "1GiB", "SPILLWAY_OFFLOAD_RATIO": "0.5"},
            "SPILLWAY_BUDGET and SPILLWAY_OFFLOAD_RATIO: give one of them",
        ),
        ([], {"SPILLWAY_REPORT_OPERATORS": "1"}, "SPILLWAY_REPORT_OPERATORS: needs --report DIR"),
        (
            [],
            {"SPILLWAY_REPORT": "out", "SPILLWAY_REPORT_KERNELS": "3"},
            "SPILLWAY_REPORT_KERNELS: needs a GPU",
        ),
        ([], {"SPILLWAY_EMULATE_ASSUME": "finite"}, "SPILLWAY_EMULATE_ASSUME=finite: needs a dry run"),
        ([], {"SPILLWAY_EMULATE_LATENCY": "3us"}, "SPILLWAY_EMULATE_LATENCY=3us: needs --clock virtual"),
    ],
)
def test_a_variable_that_is_in_the_way_is_named(
    options: list[str], inherited: dict[str, str], said: str
) -> None:
    result = spillway("emulate", *options, "--", "true", **inherited)
    assert_refused(result, f"spillway emulate: {said}")
    if options:
        assert result.stderr.endswith(" the environment, and only one of the two can be: unset it\n")


def test_the_folder_of_a_report_is_the_job_s_to_make(tmp_path: Path) -> None:
    folder = tmp_path / "not" / "there"
    code = f"import os; raise SystemExit(os.path.exists({str(folder.parent)!r}))"
    result = spillway("emulate", "--report", folder, "--", sys.executable, "-c", code)
    assert (result.returncode, result.stderr) == (0, "")
    assert not list(tmp_path.iterdir())
