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
    assert_refused(result, "spillway run: no GPU")
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
        (["--budget", "20GB"], "--budget=20GB: "),
        (["--budget", "0.8"], "--budget=0.8: "),
        (["--budget", "1023.9KiB"], "--budget=1023.9KiB: "),
        (["--operators"], "--operators: needs a report"),
        (["--kernels", "3"], "--kernels=3: needs a report"),
        (["--kernels", "3", "--report", "out"], "--kernels=3: needs a GPU"),
        (["--kernels", "0"], "--kernels=0: "),
        (["--budget", "1GiB", "--ratio", "1"], "--budget=1GiB: cannot be combined with --ratio=1"),
        (["--ratio", "half"], "--ratio=half: "),
        (["--ratio", "1.01"], "--ratio=1.01: "),
        (["--tag-ratio", "mlp"], "--tag-ratio=mlp: "),
        (["--tag-ratio", "a=1", "--tag-ratio", "a=0"], "--tag-ratio=a=1,a=0: "),
        (["--tag-ratio", ""], "--tag-ratio=: "),
        (["--report", ""], "--report=: "),
        (["--report", "/proc/out"], "--report=/proc/out: "),
        (["--report", f"{__file__}/out"], f"--report={__file__}/out: cannot be written (not a directory)"),
        (["--report", "/proc"], "--report=/proc: "),
        (["--report", __file__], f"--report={__file__}: "),
        (["--budget", "0%"], "--budget=0%: "),
        (["--budget", "all"], "--budget=all: "),
        (["--time-limit", "0.5"], "--time-limit=0.5: "),
        (["--time-limit", "fast"], "--time-limit=fast: "),
        (["--plans", "plans.json"], "plans.json: needs a budget"),
        (
            ["--budget", "1GiB", "--plans", "/not/there/plans.json"],
            "--plans=/not/there/plans.json: ",
        ),
        (["--time-limit", "1.1", "--ratio", "0.5"], "--time-limit=1.1: cannot be combined with --ratio=0.5"),
        (["--allocator", "mine"], "--allocator=mine: "),
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
            "--budget=1GiB: cannot be combined with SPILLWAY_OFFLOAD_RATIO=0.5",
        ),
        (
            ["--ratio", "0.5"],
            {"SPILLWAY_BUDGET": "1GiB"},
            "--ratio=0.5: cannot be combined with SPILLWAY_BUDGET=1GiB",
        ),
        (
            [],
            {"SPILLWAY_BUDGET": "1GiB", "SPILLWAY_OFFLOAD_RATIO": "0.5"},
            "SPILLWAY_BUDGET=1GiB: cannot be combined with SPILLWAY_OFFLOAD_RATIO=0.5",
        ),
        ([], {"SPILLWAY_REPORT_OPERATORS": "1"}, "SPILLWAY_REPORT_OPERATORS: needs a report"),
        (
            [],
            {"SPILLWAY_REPORT": "out", "SPILLWAY_REPORT_KERNELS": "3"},
            "SPILLWAY_REPORT_KERNELS=3: needs a GPU",
        ),
        ([], {"SPILLWAY_EMULATE_ASSUME": "finite"}, "SPILLWAY_EMULATE_ASSUME=finite: needs a dry run"),
        ([], {"SPILLWAY_EMULATE_LATENCY": "3us"}, "SPILLWAY_EMULATE_LATENCY=3us: needs the virtual clock"),
    ],
)
def test_a_conflicting_variable_is_named(options: list[str], inherited: dict[str, str], said: str) -> None:
    result = spillway("emulate", *options, "--", "true", **inherited)
    assert_refused(result, f"spillway emulate: {said}")


def test_the_folder_of_a_report_is_the_job_s_to_make(tmp_path: Path) -> None:
    folder = tmp_path / "not" / "there"
    code = f"import os; raise SystemExit(os.path.exists({str(folder.parent)!r}))"
    result = spillway("emulate", "--report", folder, "--", sys.executable, "-c", code)
    assert (result.returncode, result.stderr) == (0, "")
    assert not list(tmp_path.iterdir())
