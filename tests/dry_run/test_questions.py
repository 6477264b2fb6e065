# SPDX-License-Identifier: Apache-2.0
"""What can be asked of a dry run, and what stops it before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import spillway
from spillway.dry_run.alternatives import Alternative, parse


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--samples-per-step", "0"], "--samples-per-step=0: expected a number above 0, such as 8"),
        (["--samples-per-step", "many"], "--samples-per-step=many: expected a number above 0"),
        (["--samples-per-step", "inf"], "--samples-per-step=inf: expected a number above 0"),
        (["--steps", "0"], "--steps=0: expected an integer above 0, such as 3"),
        (["--steps", "1.5"], "--steps=1.5: expected an integer above 0"),
        (["--json", "/proc/not/there"], "--json /proc/not/there: cannot be written"),
        (["--json", "/"], "--json /: cannot be written"),
        (["--compare", "plain,fast"], "--compare: fast: expected plain, checkpoint, recompute, ratio="),
        (["--compare", ""], "--compare: nothing: expected plain, checkpoint"),
        (["--compare", "plain=1"], "--compare: plain=1: expected plain"),
        (["--compare", "ratio"], "--compare: ratio: expected plain"),
        (["--compare", "plain,plain"], "--compare=plain,plain: plain is there twice"),
        (["--compare", "ratio=2"], "--compare: ratio=2: expected a number from 0 to 1, such as 0.5"),
        (["--compare", "budget=20GB"], "--compare: budget=20GB: expected a size such as 512MiB or 1.5GiB"),
        (["--compare", "budget=20"], "--compare: budget=20: is less than 1MiB: give a unit"),
        (
            ["--compare", "plain", "--ratio", "0.5"],
            "--compare and --ratio (SPILLWAY_OFFLOAD_RATIO=0.5): leave",
        ),
        (
            ["--compare", "plain", "--tag-ratio", "a=1"],
            "--compare and --tag-ratio (SPILLWAY_TAG_RATIO=a=1): ",
        ),
        (["--compare", "plain", "--report", "out"], "--compare and --report (SPILLWAY_REPORT="),
    ],
)
def test_a_bad_question_is_one_line_and_starts_nothing(tmp_path: Path, options: list[str], said: str) -> None:
    started = tmp_path / "started"
    result = spillway("dry-run", *options, "--", "touch", started)
    assert (result.returncode, result.stdout) == (2, ""), result.stderr
    assert result.stderr.startswith(f"spillway dry-run: {said}")
    assert result.stderr.count("\n") == 1
    assert not started.exists()


@pytest.mark.parametrize(
    "options",
    [("--compare", "plain"), ("--json", "out.json"), ("--samples-per-step", "8"), ("--steps", "3")],
    ids=lambda o: o[0],
)
@pytest.mark.parametrize("command", ["run", "emulate"])
def test_only_a_dry_run_can_be_asked(tmp_path: Path, command: str, options: tuple[str, str]) -> None:
    started = tmp_path / "started"
    result = spillway(command, *options, "--", "touch", started)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith(f"spillway {command}: no such option '{options[0]}'")
    assert not started.exists()


def test_alternatives_are_changes_to_the_environment() -> None:
    assert parse("plain,checkpoint,ratio=0.5,budget=20GiB", {}) == [
        Alternative("plain"),
        Alternative("checkpoint", checkpoint=True),
        Alternative("ratio=0.5", {"SPILLWAY_OFFLOAD_RATIO": "0.5"}),
        Alternative("budget=20GiB", {"SPILLWAY_BUDGET": "20GiB"}),
    ]
