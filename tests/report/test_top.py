# SPDX-License-Identifier: Apache-2.0
"""Watching a job that runs, and pages that are not to be trusted."""

from __future__ import annotations

import dataclasses
import errno
import io
import json
import os
import re
import signal
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from conftest import command, run_job
from launched import clean_environment, spillway
from rich.console import Console
from spillway._scratch import scratch_folder
from spillway.top import pages, reading, view

MIB = 2**20


@contextmanager
def waiting_job(folder: Path, step: int) -> Iterator[subprocess.Popen[str]]:
    """A job that waits for a line after a step."""
    with subprocess.Popen(
        command(folder, "--ratio", "0.9"),
        env=clean_environment() | {"JOB_WAITS_AT": str(step)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        yield process


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """A job in the middle of its run: its folder, and the process."""
    folder = tmp_path_factory.mktemp("top") / "out"
    with waiting_job(folder, step=3) as process:
        yield folder, process
        process.communicate("\n", timeout=120)
    assert process.returncode == 0
    assert not pages.path_of(process.pid)
    assert not [path for path in pages.FOLDER.iterdir() if f"-{process.pid}-" in path.name]


def reading_at(seconds: float, out: int, back: int, stalled: int, **changes) -> reading.Reading:
    """Of a process that printed this text at this time."""
    page = {"process": 7, "process_start": 1, "updated": int(seconds * 1e9), "writes": 1, "steps": 3}
    sizes = {
        "allocated": MIB,
        "allocated_peak": 2 * MIB,
        "reserved": 3 * MIB,
        "offloaded": 4 * MIB,
        "capacity": 80 * 1024 * MIB,
    }
    pinned = {"pinned": 5 * MIB, "pinned_peak": 6 * MIB}
    device = reading.DeviceReading(**sizes, **pinned, copied_out=out, copied_in=back, index=1)
    tags = (
        reading.TagReading("", 0, 0, 0, 0),
        reading.TagReading("mlp", 3 * MIB, 4 * MIB, 9, stalled),
    )
    flags = {"emulated": False, "uses_spillway": True}
    return reading.Reading(**(page | flags | changes), devices=(device,), tags=tags)


def shown(now: reading.Reading, before: reading.Reading | None) -> list[str]:
    """The lines, with one blank where there are several, and no frames."""
    console = Console(width=200, file=io.StringIO())
    console.print(view.picture([now], [before]))
    lines = (re.sub(r"[^\w .,()%/–]", " ", line) for line in console.file.getvalue().splitlines())
    return [" ".join(line.split()) for line in lines if line.strip()]


def test_speeds_are_bytes_over_the_time_between_two_looks(monkeypatch):
    monkeypatch.setattr(view.time, "time_ns", lambda: 12_000_000_000)
    first = reading_at(10, out=10**9, back=2 * 10**9, stalled=10**8)
    then = reading_at(12, out=7 * 10**9, back=3 * 10**9, stalled=6 * 10**8)
    assert shown(then, first) == [
        "process 7, 3 steps, 3.0 MiB of 4.0 MiB offloaded in the last",
        "GPU capacity allocated peak reserved offloaded pinned to host to device",
        "1 80.0 GiB 1.0 MiB 2.0 MiB 3.0 MiB 4.0 MiB 5.0 MiB 3.00 GB/s 0.50 GB/s",
        "region offloaded share stalls stalled recently",
        "mlp 3.0 MiB 75.0 % 9 600.0 ms 25.0 %",
        "(no tag) 0 B – 0 0 ns 0.0 %",
    ]


def test_without_an_earlier_look_there_are_no_speeds(monkeypatch):
    monkeypatch.setattr(view.time, "time_ns", lambda: 20_000_000_000)
    only = reading_at(12, out=10**9, back=10**9, stalled=10**8, steps=1, emulated=True, uses_spillway=False)
    expected = [
        "process 7, 1 step, 3.0 MiB of 4.0 MiB offloaded in the last, emulated GPU, no news for 8.00 s",
        "1 80.0 GiB 1.0 MiB 2.0 MiB – 4.0 MiB 5.0 MiB – –",
        "mlp 3.0 MiB 75.0 % 9 100.0 ms –",
    ]
    assert [line for line in shown(only, None) if line in expected] == expected
    assert expected[1] in shown(only, only)  # nor where no time has passed between them


def test_a_page_without_capacity_shows_none():
    now = reading_at(1, out=0, back=0, stalled=0)
    device = dataclasses.replace(now.devices[0], capacity=0)
    assert shown(dataclasses.replace(now, devices=(device,)), None)[2].startswith("1 – 1.0 MiB 2.0 MiB")


def watched(console: Console, *looks: list[reading.Reading]) -> list[str]:
    """The lines that watching such looks shows, until the process has ended."""
    rest = iter(looks)

    def look():
        try:
            return next(rest)
        except StopIteration:
            raise reading.TopError("7: has ended") from None

    view.watch(look, 0, console)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("terminal", [True, False])
def test_watching_ends_with_the_process_and_a_line(terminal):
    console = Console(width=200, file=io.StringIO(), force_terminal=terminal)
    lines = watched(console, [reading_at(1, out=0, back=0, stalled=0)])
    assert lines[-1].removeprefix("\x1b[?25h") == "7: has ended"  # the cursor, which is shown again


def test_off_a_terminal_each_look_is_there():
    console = Console(width=200, file=io.StringIO())
    looks = [[reading_at(seconds, out=seconds * 10**9, back=0, stalled=0)] for seconds in (1, 2, 3)]
    lines = watched(console, *looks)
    assert sum(line.startswith("process 7, 3 steps") for line in lines) == 3
    assert sum("1.00 GB/s" in line or "953.7 MiB/s" in line for line in lines) == 2
    assert not any("\x1b" in line for line in lines)


def test_a_pipe_has_each_look_at_once(running):
    command = [sys.executable, "-m", "spillway", "top", str(running[1].pid), "--interval", "0.1"]
    with subprocess.Popen(command, env=clean_environment(), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        patience = threading.Timer(60, process.kill)
        patience.start()
        heads = (line for line in process.stdout if line.startswith(f"process {running[1].pid}, 4 steps"))
        assert next(heads) and next(heads)  # while the job still runs
        process.send_signal(signal.SIGINT)
        assert process.wait() == 0
        patience.cancel()


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
    assert 0 < device["allocated"] <= device["allocated_peak"] <= device["reserved"]
    assert device["copied_out"] == device["copied_in"] > 0 and device["pinned_peak"] > 0
    assert tag["name"] == "job" and 0 < tag["offloaded"] <= tag["offloadable"]
    assert tag["stalls"] > 0 and tag["stalled"] > 0


def test_people_see_it_too(running):
    result = spillway("top", running[1].pid, "--once", COLUMNS="120")
    assert result.returncode == 0
    assert "emulated GPU" in result.stdout and "job" in result.stdout and "4 steps" in result.stdout


def test_a_report_of_it_states_that_it_goes_on(running):
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
    with pytest.raises(reading.TopError, match=re.escape(str(page))):
        reading.read(page)


def test_a_page_that_was_written_while_it_was_copied_is_copied_again(running, monkeypatch):
    page, meanwhile = pages.path_of(running[1].pid), [2]
    looked = reading._sequence
    monkeypatch.setattr(
        reading, "_sequence", lambda path: looked(path) + (meanwhile.pop() if meanwhile else 0)
    )
    assert reading.read(page).process == running[1].pid
    assert not meanwhile


@pytest.mark.parametrize(
    ("change", "mode", "message"),
    [
        (lambda text: text.__setitem__(slice(8, 12), struct.pack("<I", 5)), 0o600, "layout 5"),
        (lambda text: text.__setitem__(slice(0, 8), b"Anything"), 0o600, "statistics page"),
        (lambda text: text.__delitem__(slice(100, None)), 0o600, "is damaged"),
        (lambda text: text.extend(b"more"), 0o600, "is damaged"),
        (lambda text: text.clear(), 0o600, "statistics page"),
        (lambda text: None, 0o644, "not trusted"),
    ],
)
def test_a_page_that_is_not_as_it_should_be_is_one_line(running, tmp_path, change, mode, message):
    text = bytearray(pages.path_of(running[1].pid).read_bytes())
    change(text)
    page = tmp_path / "page"
    page.write_bytes(text)
    page.chmod(mode)
    with pytest.raises(reading.TopError, match=message) as caught:
        reading.read(page)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("target", "needed"),
    [(str(2**22 + 1), "process"), (str(os.getpid()), "--report"), ("/nowhere", "process ID, or the folder")],
)
def test_what_cannot_be_watched_is_one_line_and_status_2(target, needed):
    result = spillway("top", target, "--once")
    assert result.returncode == 2
    assert result.stderr.startswith(f"spillway top: {target}: ") and result.stderr.count("\n") == 1
    assert needed in result.stderr


def test_another_user_s_process_is_refused(monkeypatch):
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    with pytest.raises(reading.TopError, match=rf"{os.getpid()}: .*another user"):
        reading.find(str(os.getpid()))


@pytest.fixture
def killed(tmp_path):
    """A job that SIGTERM has ended in the middle of its run: its folder, its number, its page."""
    folder = tmp_path / "out"
    with waiting_job(folder, step=1) as process:
        page = pages.path_of(process.pid)
        process.terminate()
    assert process.returncode == -signal.SIGTERM
    assert page.exists()
    yield folder, process.pid, page
    page.unlink(missing_ok=True)


def test_a_job_that_was_killed_is_not_running_and_its_page_goes(killed):
    folder, process, page = killed
    by_number = spillway("top", process, "--once")
    assert (by_number.returncode, by_number.stdout) == (2, "")
    assert by_number.stderr == f"spillway top: {process}: has ended. Name a running one.\n"
    assert not page.exists()
    by_folder = spillway("top", folder, "--once")
    assert (by_folder.returncode, by_folder.stdout) == (2, "")
    assert by_folder.stderr.startswith(f"spillway top: {folder}: ") and by_folder.stderr.count("\n") == 1


def test_the_next_job_removes_what_a_killed_one_has_left(killed, tmp_path):
    again = run_job(tmp_path / "again", JOB_STEPS="1")
    assert again.returncode == 0, again.stderr
    assert not killed[2].exists()


def test_a_zombie_process_has_ended():
    with subprocess.Popen(["true"]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        with pytest.raises(reading.TopError, match=f"{process.pid}: has ended"):
            reading.find(str(process.pid))


@pytest.mark.parametrize("error", [errno.EMFILE, errno.EACCES, errno.ENOENT])
def test_what_a_process_may_still_use_stays_where_its_state_cannot_be_read(tmp_path, monkeypatch, error):
    monkeypatch.setattr(pages, "FOLDER", tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with subprocess.Popen(["sleep", "60"]) as process:
        page = pages.path_of(process.pid)
        page.touch(0o600)
        folder = tmp_path / f"{page.name.replace('-top-', '-run-')}-abc"
        folder.mkdir(0o700)
        # /proc out of reach: no descriptor is left, or it is hidden.
        read = Path.read_bytes

        def unreadable(path):
            if path.parts[:2] == ("/", "proc"):
                raise OSError(error, os.strerror(error))
            return read(path)

        with monkeypatch.context() as patch:
            patch.setattr(Path, "read_bytes", unreadable)
            remove_all_stale()
            assert page.exists() and folder.exists()
            process.kill()
            process.wait()
            remove_all_stale()  # the kernel knows no such process
        assert not page.exists() and not folder.exists()


def remove_all_stale():
    pages.remove_stale()
    with scratch_folder():
        pass


def test_pages_of_ended_processes_are_removed_and_others_left(tmp_path, monkeypatch):
    monkeypatch.setattr(pages, "FOLDER", tmp_path)
    alive = pages.path_of(os.getpid())
    of_user, namespace = os.getuid(), alive.name.split("-")[3]
    # The number was another's before.
    ended = tmp_path / f"spillway-top-{of_user}-{namespace}-{os.getpid()}-1"
    foreign = tmp_path / f"spillway-top-{of_user + 1}-{namespace}-{os.getpid()}-1"
    elsewhere = tmp_path / f"spillway-top-{of_user}-{int(namespace) + 1}-{os.getpid()}-1"
    another = tmp_path / f"{os.getpid()}-1"  # no page
    for path in (alive, ended, foreign, elsewhere, another):
        path.touch(0o600)
    pages.remove_stale()
    assert sorted(tmp_path.iterdir()) == sorted([alive, foreign, elsewhere, another])
