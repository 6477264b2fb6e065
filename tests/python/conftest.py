# SPDX-License-Identifier: Apache-2.0
"""Runs the `spillway` command: as a process, or in this one where no command of its own must run."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from launched import clean_environment
from spillway import cli

SHOW = [sys.executable, "-c", "import json, os; print(json.dumps(dict(os.environ)))"]


def spillway(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "spillway", *arguments],
        env=clean_environment() | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


class Started(BaseException):
    """Raised instead of starting a command by execve."""

    def __init__(self, command: list[str], environment: Mapping[str, str]) -> None:
        self.command, self.environment = command, dict(environment)


def _execve(program: str, command: list[str], environment: Mapping[str, str]) -> None:
    raise Started(command, environment)


@dataclass
class Called:
    returncode: int
    stdout: str
    stderr: str
    command: list[str] | None = None  # that would run now
    environment: dict[str, str] | None = None


def call(*arguments: str | Path, **environment: str) -> Called:
    """`spillway ARGUMENTS` in this process, which starts no command but returns it."""
    out, err = (io.TextIOWrapper(io.BytesIO(), write_through=True) for _ in range(2))

    def written() -> tuple[str, str]:
        out_text, err_text = (each.buffer.getvalue().decode() for each in (out, err))
        return out_text, err_text

    with (
        mock.patch.dict(os.environ, clean_environment() | environment, clear=True),
        mock.patch.object(os, "execve", _execve),
        mock.patch.object(tempfile, "tempdir", None),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            status = cli.main([str(each) for each in arguments])
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 0
        except Started as started:
            return Called(0, *written(), started.command, started.environment)
    return Called(status, *written())


def seen_by_command(*arguments: str | Path, **environment: str) -> dict[str, str]:
    """The environment of a command under `spillway ARGUMENTS -- COMMAND`."""
    if "--check" not in arguments and arguments[0] != "dry-run":
        called = call(*arguments, "--", sys.executable, **environment)
        assert called.environment is not None, called.stderr
        return called.environment
    result = spillway(*arguments, "--", *SHOW, **environment)
    assert result.returncode == 0, result.stderr
    seen: dict[str, str] = json.loads(result.stdout)
    return seen


def settings_of(seen: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in seen.items() if name.startswith("SPILLWAY_")}


def assert_refused(result: Called | subprocess.CompletedProcess[str], subject: str) -> None:
    """By one line, which names the setting and its value, the file or the command, and exit status 2."""
    assert (result.returncode, result.stdout) == (2, ""), result.stderr
    assert subject in result.stderr
    assert result.stderr.count("\n") == 1
