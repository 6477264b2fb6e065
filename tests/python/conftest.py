# SPDX-License-Identifier: Apache-2.0
"""Runs the `spillway` command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

SHOW = [sys.executable, "-c", "import json, os; print(json.dumps(dict(os.environ)))"]


def clean_environment() -> dict[str, str]:
    return {
        name: value for name, value in os.environ.items() if not name.startswith(("SPILLWAY_", "LD_PRELOAD"))
    }


def spillway(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "spillway", *arguments],
        env=clean_environment() | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def seen_by_command(*arguments: str | Path, **environment: str) -> dict[str, str]:
    """The environment of a command under `spillway ARGUMENTS -- COMMAND`."""
    result = spillway(*arguments, "--", *SHOW, **environment)
    assert result.returncode == 0, result.stderr
    seen: dict[str, str] = json.loads(result.stdout)
    return seen


def settings_of(seen: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in seen.items() if name.startswith("SPILLWAY_")}


def assert_refused(result: subprocess.CompletedProcess[str], subject: str) -> None:
    """By one line, which names the setting and its value, the file or the command, and exit status 2."""
    assert (result.returncode, result.stdout) == (2, ""), result.stderr
    assert subject in result.stderr
    assert result.stderr.count("\n") == 1


def assert_nothing_starts(started: Path, options: list[str], subject: str) -> None:
    """`emulate` refuses these options and does not run its command, which would create `started`."""
    result = spillway("emulate", *options, "--", "touch", started)
    assert_refused(result, subject)
    assert not started.exists()
