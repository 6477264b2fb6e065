# SPDX-License-Identifier: Apache-2.0
"""Bad arguments: one line that names option, value and what is allowed, status 2, and no set-up."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Script

BAD = [
    (("--steps", "0"), "--steps 0: expected an integer from 1 to 100000"),
    (("--steps", "2.5"), "--steps 2.5: expected an integer from 1 to 100000"),
    (("--steps", "100001"), "--steps 100001: expected an integer from 1 to 100000"),
    (("--ratio", "1.01"), "--ratio 1.01: expected a number from 0 to 1"),
    (("--ratio=-0.5",), "--ratio -0.5: expected a number from 0 to 1"),
    (("--ratio", "nan"), "--ratio nan: expected a number from 0 to 1"),
    (("--ratio", "half"), "--ratio half: expected a number from 0 to 1"),
    (
        ("--data", "absent.txt"),
        "--data absent.txt: no such file; expected a readable text file of at least 4096",
    ),
    (
        ("--data", "scripts"),
        "--data scripts: not a file; expected a readable text file of at least 4096 bytes",
    ),
    (
        ("--data", "short.txt"),
        "--data short.txt: 5 bytes are too few; expected a readable text file of at least",
    ),
    (("--allocator", "other"), "--allocator other: expected one of spillway torch"),
    (("--device", "tpu"), "--device tpu: expected one of auto cuda emulated"),
    (("--size", "huge"), "--size huge: expected one of demo small"),
    (("--json", "absent/file"), "--json absent/file: expected a file name in an existing folder"),
    (("--picture", "scripts"), "--picture scripts: expected a file name in an existing folder"),
    (("--steps",), "--steps: expected a value"),
    (("--stepz", "3"), "--stepz: unknown option"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD, ids=lambda value: str(value[0]))
def test_bad_argument_is_refused_in_one_line_before_set_up(script: Script, arguments, message) -> None:
    (script.folder / "short.txt").write_text("short")

    done = script.run("demo", *arguments)

    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert not script.set_up_began


@pytest.mark.parametrize(
    "arguments", [("--steps", "08"), ("--ratio", "1.0"), ("--ratio=.5",), ("--ratio", "0")]
)
def test_good_argument_reaches_set_up(script: Script, arguments) -> None:
    assert script.run("demo", *arguments).returncode == 9
    assert script.set_up_began


def test_unreadable_data_is_refused_by_the_package_too(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "spillway.demo", "--data", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert done.stderr.startswith(f"demo: --data={tmp_path}: ") and done.stderr.count("\n") == 1


def test_bad_ratio_is_refused_by_the_package_too() -> None:
    command = [sys.executable, "-m", "spillway.demo", "--ratio", "nan"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert done.stderr.startswith("demo: --ratio=nan: ") and done.stderr.count("\n") == 1
