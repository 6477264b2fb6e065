# SPDX-License-Identifier: Apache-2.0
"""What is written where others may write too, and what is never replaced."""

from __future__ import annotations

import json
import os
import stat
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
import synthetic
from spillway import _files, _plan_file, cli
from spillway.report import plans
from spillway.report.log import ReportError
from spillway.report.output import read, write
from spillway.report.runs import read_folder


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    path = tmp_path / "victim"
    path.write_text("precious")
    return path


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Names and flags of the files that are made."""
    found: list[tuple[str, int]] = []
    real = os.open

    def note(path, flags, *rest, **more):
        if flags & os.O_CREAT:
            found.append((os.path.basename(path), flags))
        return real(path, flags, *rest, **more)

    monkeypatch.setattr(os, "open", note)
    return found


def plan_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> _plan_file.PlanFile:
    step = {"sizes": [1], "recomputable": [True]}
    glue = SimpleNamespace(records=lambda _: 1, known_steps=lambda *_: [step])
    monkeypatch.setattr(_plan_file, "glue", lambda: glue)
    monkeypatch.setattr(_plan_file.PlanFile, "_where", lambda _: {"gpu": "a"})
    monkeypatch.setattr(_plan_file.PlanFile, "_device", lambda _: 0)
    monkeypatch.delenv("RANK", raising=False)
    return _plan_file.PlanFile(path, "job")


def explanation() -> SimpleNamespace:
    return SimpleNamespace(as_dict=lambda: {"tag": "job"})


WRITERS = {
    "plan file": lambda path, monkeypatch: plan_file(path, monkeypatch).write(),
    "plans of a report": lambda path, _: plans.write_plans(path, [explanation()]),
    "several": lambda path, _: _files.replace({path: "a", path.with_name("other"): "b"}),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_a_link_is_replaced_and_not_followed(tmp_path, victim, monkeypatch, writer):
    path = tmp_path / "file"
    path.symlink_to(victim)
    path.with_name(f"file.{os.getpid()}").symlink_to(victim)  # a draft's name that can be guessed
    WRITERS[writer](path, monkeypatch)
    assert victim.read_text() == "precious"
    assert stat.S_ISREG(path.lstat().st_mode) and path.read_text()


@pytest.mark.parametrize("writer", WRITERS)
def test_drafts_are_new_files_with_unpredictable_names(tmp_path, monkeypatch, opened, writer):
    for _ in range(2):
        WRITERS[writer](tmp_path / "file", monkeypatch)
    assert opened and all(flags & os.O_EXCL and flags & os.O_NOFOLLOW for _, flags in opened)
    names = [name for name, _ in opened]
    assert len(set(names)) == len(names)
    assert not any(str(os.getpid()) in name or "file" in name for name in names)
    assert {path.name for path in tmp_path.iterdir()} <= {"file", "other"}


def test_the_longest_name_can_be_written(tmp_path):
    path = tmp_path / ("x" * 255)
    _files.replace({path: "a"})
    assert path.read_text() == "a"


def test_nothing_is_left_and_nothing_changed_where_one_cannot_be_written(tmp_path):
    kept = tmp_path / "kept"
    kept.write_text("before")
    with pytest.raises(OSError):
        _files.replace({kept: "after", tmp_path / "missing/file": "x"})
    assert list(tmp_path.iterdir()) == [kept] and kept.read_text() == "before"


# --- spillway report --output


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    synthetic.write(tmp_path / "out" / "7-1.spillway")
    return tmp_path / "out"


def report(folder: Path, output: Path, capfd: pytest.CaptureFixture[str]) -> str:
    assert cli.main(["report", str(folder), "--output", str(output)]) == 0
    return capfd.readouterr().out


def test_a_device_stays_a_device(folder, tmp_path, capfd):
    null = tmp_path / "null"
    try:
        os.mknod(null, stat.S_IFCHR | 0o600, os.makedev(1, 3))
        null.open("wb").close()
    except PermissionError:
        pytest.skip("only root can make a device here")
    said = report(folder, null, capfd)
    assert stat.S_ISCHR(null.lstat().st_mode)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["null", "out"]
    assert "trace.json" not in said


def test_a_pipe_gets_the_page_and_stays(folder, tmp_path, capfd):
    pipe, got = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: got.append(pipe.read_text()), daemon=True)
    reader.start()
    report(folder, pipe, capfd)
    reader.join(60)
    assert stat.S_ISFIFO(pipe.lstat().st_mode)
    assert got[0].startswith("<!DOCTYPE html>") and got[0].endswith("</html>\n")


def test_an_open_file_is_written_to_by_its_link(folder, tmp_path, capfd):
    link = tmp_path / "stdout"  # as /dev/stdout is one
    with open(tmp_path / "file", "w") as file:
        link.symlink_to(f"/proc/self/fd/{file.fileno()}")
        report(folder, link, capfd)
    assert link.is_symlink()
    assert (tmp_path / "file").read_text().startswith("<!DOCTYPE html>")


def test_an_ordinary_link_to_a_file_is_replaced(folder, tmp_path, victim, capfd):
    link = tmp_path / "page.html"
    link.symlink_to(victim)
    said = report(folder, link, capfd)
    assert victim.read_text() == "precious" and not link.is_symlink()
    assert json.loads((tmp_path / "page.trace.json").read_text()) and "page.trace.json" in said


def test_a_folder_as_output_is_one_line(folder, tmp_path):
    digests = read(folder)
    assert read_folder(folder)
    with pytest.raises(ReportError, match=rf"{tmp_path}: .*\(is a directory\)"):
        write(digests, tmp_path)


def test_a_link_to_a_device_elsewhere_is_replaced(folder, tmp_path, capfd):
    link = tmp_path / "page.html"
    link.symlink_to("/dev/null")
    report(folder, link, capfd)
    assert not link.is_symlink()
    assert link.read_text().startswith("<!DOCTYPE html>")
