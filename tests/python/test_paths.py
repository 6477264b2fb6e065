# SPDX-License-Identifier: Apache-2.0
"""Paths that are too long, lead nowhere or are not UTF-8: one line, with the option and the path."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import clean_environment
from spillway import _job, cli, settings
from spillway._text import printable

LONG = b"x" * 300
PATHS = {
    "long name": LONG,
    "long path": b"d/" * 3000 + b"x",
    "under a file": b"/dev/null/x",
    "loop": b"loop/x",
    "loop itself": b"loop",
    "not UTF-8": b"missing/\xff\xfe",
}
DRY = (b"dry-run",)
RUN = (b"emulate", b"--budget", b"1GiB")
# Commands, {} the path; what the line names beside the path.
COMMANDS = {
    "--plans": (*RUN, b"--plans", b"{}", b"--", b"true"),
    "--json": (*DRY, b"--json", b"{}", b"--", b"true"),
    "mine": (b"emulate", b"{}.toml", b"--", b"true"),
    "top": (b"top", b"{}"),
    "report": (b"report", b"{}"),
    "explain": (b"explain", b"{}"),
    "trace": (b"trace", b"show", b"{}"),
    "bench": (b"bench", b"--emulate", b"--json", b"{}", b"overlap"),
    "run": (b"emulate", b"--", b"{}"),
}


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "loop").symlink_to("loop")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "execve", lambda *_: pytest.fail("the command is started"))
    for name in [name for name in os.environ if name.startswith("SPILLWAY_")]:
        monkeypatch.delenv(name)
    return tmp_path


def outcome(arguments: list[bytes], capfd: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """The exit status, and what is on stderr."""
    try:
        status = cli.main([os.fsdecode(word) for word in arguments])
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else 0
    return status, capfd.readouterr().err


def shown(path: bytes) -> str:
    return path.decode(errors="backslashreplace")


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("command", COMMANDS)
def test_it_is_one_line_with_the_path(work, command, path, capfd):
    status, said = outcome([word.replace(b"{}", PATHS[path]) for word in COMMANDS[command]], capfd)
    assert status in (2, 126, 127) and said.count("\n") == 1, said[-500:]
    assert shown(PATHS[path]) in said
    if command.startswith("--"):
        assert command in said


@pytest.mark.parametrize("path", [name for name in PATHS if name != "not UTF-8"])
def test_a_folder_for_a_report_that_cannot_be_made_is_one_line(work, path, capfd):
    status, said = outcome([*RUN, b"--report", PATHS[path], b"--", b"true"], capfd)
    assert (status, said.count("\n")) == (2, 1), said[-500:]
    assert "--report" in said and shown(PATHS[path]) in said


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("option", ["report", "plans", "tag_ratio"])
def test_a_variable_is_accepted_or_named_with_its_value(work, option, path, monkeypatch):
    """Any other error would break the import of torch."""
    (setting,) = (each for each in settings.JOB if each.option == option)
    monkeypatch.setenv("SPILLWAY_BUDGET", "1GiB")
    monkeypatch.setenv(setting.variable, os.fsdecode(PATHS[path]))
    try:
        assert _job.wanted()[option] == os.fsdecode(PATHS[path])
    except settings.LaunchError as error:
        assert setting.variable in str(error) and shown(PATHS[path]) in printable(str(error))


def spillway(*arguments: bytes) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [os.fsencode(sys.executable), b"-m", b"spillway", *arguments],
        env=clean_environment(),
        capture_output=True,
        check=False,
        timeout=300,
    )


def test_a_folder_s_name_need_not_be_text(work):
    folder, argument = b"out-\xff\n\x1b[31m", b"\xfe\x1b[31m"
    script = b"import torch; torch.zeros(9, device='cuda')"
    job = spillway(
        *(b"emulate", b"--ratio", b"1", b"--report", folder, b"--"),
        *(os.fsencode(sys.executable), b"-c", script, argument),
    )
    assert (job.returncode, job.stderr) == (0, b"")
    report = spillway(b"report", folder)
    assert (report.returncode, report.stderr) == (0, b"")
    assert b"\x1b" not in report.stdout
    page = (work / os.fsdecode(folder) / "report.html").read_text()
    assert "\\xfe\\x1b[31m" in page
    exported = spillway(b"env", b"--report", folder)
    assert (
        exported.returncode == 0
        and b"SPILLWAY_REPORT='" + os.fsencode(work) + b"/" + folder in exported.stdout
    )
