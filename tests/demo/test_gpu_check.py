# SPDX-License-Identifier: Apache-2.0
"""scripts/gpu_check on a machine without a GPU, its limits, and what it needs on one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from spillway.demo.device import why_no_gpu

from bench import gpu_check

ROOT = Path(__file__).parents[2]
no_gpu = pytest.mark.skipif(why_no_gpu() is None, reason="this machine has a GPU")


@pytest.fixture
def check(tmp_path: Path):
    with (tmp_path / "log").open("w") as log:
        yield gpu_check.Check(True, tmp_path, log)


@no_gpu
def test_without_a_gpu_it_fails_with_a_reason() -> None:
    done = subprocess.run([str(ROOT / "scripts" / "gpu_check")], capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert done.stderr.startswith("gpu_check: no GPU here: ")
    assert done.stderr.count("\n") == 1


def test_unknown_option_is_refused() -> None:
    command = [str(ROOT / "scripts" / "gpu_check"), "--wet-run"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert "--wet-run: unknown option" in done.stderr


def test_unknown_step_is_refused_and_the_known_ones_named() -> None:
    command = [str(ROOT / "scripts" / "gpu_check"), "--dry-run", "--built", "wander"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert "wander: unknown step; known are bench, conformance, tests," in done.stderr


def test_results_of_budgets_so_far_are_kept_when_time_is_up(
    check: gpu_check.Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(_command: list[str], limit: float, output: Path, **_environment: str) -> int:
        output.write_text('on its way\n{"plain": 1}\n{"plain": 1, "budgets": [2]}\n')
        raise subprocess.TimeoutExpired("planning", limit)

    monkeypatch.setattr(check, "run", run)
    monkeypatch.setattr(gpu_check, "python", lambda: sys.executable)

    assert not check.step("budgets", 60, lambda limit: gpu_check.budgets(check, limit))
    assert json.loads((check.folder / "gpu_check.json").read_text())["budgets"] == {
        "plain": 1,
        "budgets": [2],
    }


def test_step_past_its_limit_is_stopped_and_noted(check: gpu_check.Check) -> None:
    endless = [sys.executable, "-c", "while True: pass"]

    assert not check.step("endless", 5, lambda _limit: check.run(endless, 0.2))
    assert (
        json.loads((check.folder / "gpu_check.json").read_text())["steps"][0]["status"] == "stopped after 5 s"
    )


def test_no_step_begins_when_the_time_is_up(check: gpu_check.Check) -> None:
    check.began -= gpu_check.LIMIT
    ran = []

    assert not check.step("late", 60, lambda limit: ran.append(limit) or 0)
    assert ran == []


def test_failed_step_keeps_its_status(check: gpu_check.Check) -> None:
    assert not check.step("failing", 60, lambda limit: check.run([sys.executable, "-c", "exit(3)"], limit))
    assert check.steps[0]["status"] == "exit status 3"


@no_gpu
def test_gpu_tests_are_skipped_with_the_reason() -> None:
    command = [sys.executable, str(ROOT / "tests/gpu/on_gpu.py"), sys.executable, "-c", "raise SystemExit(5)"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 77
    assert done.stdout.startswith("skipped: ")


def test_the_claims_that_a_driver_does_not_meet_are_kept_by_name() -> None:
    def case(name: str, **more: object) -> dict[str, object]:
        return {"classname": "on/Memory", "name": name, "result": "COMPLETED", **more}

    report = {
        "testsuites": [
            {"testsuite": [case("A/real"), case("B/real", failures=[{"failure": "not so"}])]},
            {"testsuite": [case("C/real", result="SKIPPED")]},
        ]
    }
    expected = {"claims": 3, "failed": {"on/Memory.B/real": ["not so"]}, "skipped": 1}
    assert gpu_check.summary(report) == expected
