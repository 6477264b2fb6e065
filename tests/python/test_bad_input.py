# SPDX-License-Identifier: Apache-2.0
"""What cannot be done is one clear line and status 2, and leaves nothing behind."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import assert_refused, call
from spillway.top import pages


def broken_log(folder: Path) -> None:
    folder.mkdir()
    (folder / "7-1.spillway").write_text('{"spillway_run_log": 2}\n')


RUN = ("emulate",)
# The arguments, the beginning of the line (the command, and the value or file), and what exists before.
CASES: dict[str, tuple[tuple[str, ...], str, Callable[[Path], object] | None]] = {
    "no command": (
        (),
        "spillway: expected a command: run, env, emulate, dry-run, fit, report, explain, top, trace, doctor, "
        "bench (see spillway --help)",
        None,
    ),
    "no subcommand": (
        ("trace",),
        "spillway trace: expected a command: show (see spillway trace --help)",
        None,
    ),
    "unknown subcommand": (("trace", "hide"), "spillway trace: no such command 'hide'", None),
    "no file": (("trace", "show"), "spillway trace show: missing argument 'FILE' (see spillway trace", None),
    "unknown command": (("train",), "spillway: no such command 'train'", None),
    "unknown option": (("--speed",), "spillway: no such option '--speed'", None),
    "unknown option of a command": (
        (*RUN, "--speed", "--", "true"),
        "spillway emulate: no such option",
        None,
    ),
    "no program": ((*RUN, "--ratio", "1", "--"), "spillway emulate: expected a command after --", None),
    "no size": (("env", "--budget", "20GB"), "spillway env: --budget=20GB: ", None),
    "no trace": (
        ("trace", "show", "in"),
        "spillway trace: in: ",
        lambda at: at.write_text("x" * 99),
    ),
    "missing trace": (("trace", "show", "in"), "spillway trace: in: ", None),
    "cut trace": (
        ("trace", "show", "in"),
        "spillway trace: in: ",
        lambda at: at.write_text("SPILLPRE"),
    ),
    "no log": (("report", "in"), "spillway report: in: ", Path.mkdir),
    "broken log": (("report", "in"), "spillway report: in/7-1.spillway: ", broken_log),
    "no log to explain": (("explain", "in"), "spillway explain: in: ", Path.mkdir),
    "nothing to watch": (("top", "in"), "spillway top: in: ", Path.mkdir),
    "unknown benchmark": (("bench", "--emulate", "speed"), "spillway bench: speed: ", None),
    "no GPU": (
        ("run", "--", "touch", "started"),
        "spillway run: no GPU",
        None,
    ),
    "no GPU for benchmarks": (("bench",), "spillway bench: no GPU", None),
    "another Spillway": (
        (*RUN, "--", "touch", "started"),
        "spillway emulate: /else/libspillway_preload.so: ",
        None,
    ),
}
CHANGES = {"another Spillway": {"LD_PRELOAD": "/else/libspillway_preload.so"}}


@pytest.mark.parametrize("case", CASES)
def test_it_is_one_line_and_nothing_is_left(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments, said, before = CASES[case]
    work, others = tmp_path / "work", tmp_path / "others"
    work.mkdir()
    others.mkdir()
    if before:
        before(work / "in")
    monkeypatch.chdir(work)
    there, pages_there = sorted(tmp_path.rglob("*")), sorted(os.listdir(pages.FOLDER))
    folders = {name: str(others) for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME")}
    called = call(*arguments, **folders, CUDA_VISIBLE_DEVICES="", **CHANGES.get(case, {}))
    assert_refused(called, said)
    assert called.stderr.startswith(said)
    assert sorted(tmp_path.rglob("*")) == there
    assert not [
        name for name in os.listdir(pages.FOLDER) if f"-{os.getpid()}-" in name and name not in pages_there
    ]
