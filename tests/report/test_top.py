# SPDX-License-Identifier: Apache-2.0
"""Watching a job that runs, and pages that are not to be trusted."""

from __future__ import annotations

import json
import os
import struct
import subprocess

import pytest
from conftest import clean_environment, command, spillway
from spillway.top import pages, reading


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """A job in the middle of its run: its folder, and the process."""
    folder = tmp_path_factory.mktemp("top") / "out"
    with subprocess.Popen(
        command(folder, "--ratio", "0.9"),
        env=clean_environment() | {"JOB_WAITS_AT": "3"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        yield folder, process
        process.communicate("\n", timeout=120)
    assert process.returncode == 0
    assert not pages.path_of(process.pid)
    assert not [path for path in pages.FOLDER.iterdir() if f"-{process.pid}-" in path.name]


def look(target) -> dict:
    result = spillway("top", target, "--once", "--json")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)["processes"][0]


def test_a_process_and_its_folder_show_the_same(running):
    folder, process = running
    assert look(folder) == look(process.pid)


def test_it_shows_memory_copies_and_stalls_by_tag(running):
    seen = look(running[1].pid)
    assert seen["process"] == running[1].pid and seen["steps"] == 4 and seen["emulated"]
    device, tag = seen["devices"][0], seen["tags"][0]
    assert 0 < device["live"] <= device["live_peak"] <= device["held"]
    assert device["copied_out"] == device["copied_in"] > 0 and device["pinned_peak"] > 0
    assert tag["name"] == "job" and 0 < tag["moved"] <= tag["movable"]
    assert tag["stalls"] > 0 and tag["stalled"] > 0


def test_people_see_it_too(running):
    result = spillway("top", running[1].pid, "--once", COLUMNS="120")
    assert result.returncode == 0
    assert "emulated GPU" in result.stdout and "job" in result.stdout and "4 steps" in result.stdout


def test_a_report_of_it_says_that_it_goes_on(running):
    result = spillway("report", running[0])
    assert "unfinished" in result.stdout


def test_the_page_is_the_user_s_alone(running):
    page = pages.path_of(running[1].pid)
    assert page.stat().st_mode & 0o777 == 0o600
    assert page.stat().st_size == reading.SIZE


def test_a_copy_of_the_page_that_is_in_the_middle_of_a_write_is_not_shown(running, tmp_path):
    text = bytearray(pages.path_of(running[1].pid).read_bytes())
    (sequence,) = struct.unpack_from("<Q", text, 32)
    struct.pack_into("<Q", text, 32, sequence + 1)
    page = tmp_path / "page"
    page.write_bytes(text)
    page.chmod(0o600)
    with pytest.raises(reading.TopError, match="in the middle of a write"):
        reading.read(page)


@pytest.mark.parametrize(
    ("change", "mode", "says"),
    [
        (lambda text: text.__setitem__(slice(8, 12), struct.pack("<I", 2)), 0o600, "is of layout 2"),
        (lambda text: text.__setitem__(slice(0, 8), b"SOMEBODY"), 0o600, "is no statistics page"),
        (lambda text: text.__delitem__(slice(100, None)), 0o600, "is damaged"),
        (lambda text: text.extend(b"more"), 0o600, "is damaged"),
        (lambda text: text.clear(), 0o600, "is no statistics page"),
        (lambda text: None, 0o644, "not trusted"),
    ],
)
def test_a_page_that_is_not_as_it_should_be_is_one_line(running, tmp_path, change, mode, says):
    text = bytearray(pages.path_of(running[1].pid).read_bytes())
    change(text)
    page = tmp_path / "page"
    page.write_bytes(text)
    page.chmod(mode)
    with pytest.raises(reading.TopError, match=says) as caught:
        reading.read(page)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("target", "says"),
    [
        (str(2**22 + 1), "there is no such process"),
        (str(os.getpid()), "shows no statistics"),
        ("/nowhere", "expected a process's number"),
    ],
)
def test_what_cannot_be_watched_is_one_line_and_status_2(target, says):
    result = spillway("top", target, "--once")
    assert result.returncode == 2
    assert says in result.stderr and result.stderr.count("\n") == 1


def test_another_user_s_process_is_refused(monkeypatch):
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    with pytest.raises(reading.TopError, match="another user's"):
        reading.find(str(os.getpid()))


def test_pages_of_ended_processes_are_removed_and_others_left(tmp_path, monkeypatch):
    monkeypatch.setattr(pages, "FOLDER", tmp_path)
    alive = pages.path_of(os.getpid())
    ended = tmp_path / f"spillway-top-{os.getuid()}-{os.getpid()}-1"  # the number was another's before
    foreign = tmp_path / f"spillway-top-{os.getuid() + 1}-{os.getpid()}-1"
    for path in (alive, ended, foreign):
        path.touch(0o600)
    pages.remove_stale()
    assert sorted(tmp_path.iterdir()) == sorted([alive, foreign])
