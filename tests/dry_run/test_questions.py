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
        (["--samples-per-step", "0"], "--samples-per-step=0: "),
        (["--samples-per-step", "many"], "--samples-per-step=many: "),
        (["--samples-per-step", "inf"], "--samples-per-step=inf: "),
        (["--steps", "0"], "--steps=0: "),
        (["--steps", "1.5"], "--steps=1.5: "),
        (["--json", "/proc/not/there"], "--json=/proc/not/there: "),
        (["--json", "/"], "--json=/: "),
        (["--compare", "plain,fast"], "--compare=fast: "),
        (["--compare", ""], "--compare=: "),
        (["--compare", "plain=1"], "--compare=plain=1: "),
        (["--compare", "ratio"], "--compare=ratio: "),
        (["--compare", "plain,plain"], "--compare=plain,plain: "),
        (["--compare", "ratio=2"], "--compare=ratio=2: "),
        (["--compare", "budget=20GB"], "--compare=budget=20GB: "),
        (["--compare", "budget=20"], "--compare=budget=20: "),
        (
            ["--compare", "plain", "--ratio", "0.5"],
            "--compare=plain: cannot be combined with --ratio (SPILLWAY_OFFLOAD_RATIO=0.5",
        ),
        (
            ["--compare", "plain", "--tag-ratio", "a=1"],
            "--compare=plain: cannot be combined with --tag-ratio (SPILLWAY_TAG_RATIO=a=1",
        ),
        (
            ["--compare", "plain", "--report", "out"],
            "--compare=plain: cannot be combined with --report (SPILLWAY_REPORT=",
        ),
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
    option = options[0] if command == "run" else f"no such option '{options[0]}'"
    assert result.stderr.startswith(f"spillway {command}: {option}")
    assert not started.exists()


def test_alternatives_are_changes_to_the_environment() -> None:
    assert parse("plain,checkpoint,ratio=0.5,budget=20GiB", {}) == [
        Alternative("plain"),
        Alternative("checkpoint", checkpoint=True),
        Alternative("ratio=0.5", {"SPILLWAY_OFFLOAD_RATIO": "0.5"}),
        Alternative("budget=20GiB", {"SPILLWAY_BUDGET": "20GiB"}),
    ]
