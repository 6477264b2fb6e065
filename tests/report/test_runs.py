# SPDX-License-Identifier: Apache-2.0
"""A folder that several runs have written to, and which of its logs belong together."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import synthetic
from conftest import command
from launched import clean_environment, spillway
from spillway.report.digests import digest
from spillway.report.log import ReportError, read_log
from spillway.report.output import read
from spillway.report.runs import read_folder, runs_of
from spillway.report.words import notices

SECOND = 10**9


def log(folder: Path, process: int, started: float, seconds: int, **about) -> None:
    lines = [*synthetic.LINES, ["step", seconds * SECOND, 2, synthetic.STATE]]
    about = {"process": process, "started": started} | about
    synthetic.write(folder / f"{process}-1.spillway", lines, **about)


def processes(folder: Path) -> list[list[int]]:
    runs = runs_of(read_log(path) for path in sorted(folder.glob("*.spillway")))
    return [sorted(log.about["process"] for log in run) for run in runs]


def test_runs_one_after_the_other_are_apart(tmp_path):
    log(tmp_path, 8, 1000.0, 10, launch="8-1")
    log(tmp_path, 7, 2000.0, 10, launch="7-1")
    log(tmp_path, 9, 1500.0, 10)  # of a spillway that did not know launches
    assert processes(tmp_path) == [[8], [9], [7]]


def test_one_launch_is_one_run(tmp_path):
    log(tmp_path, 7, 1000.0, 10, launch="5-1")
    log(tmp_path, 8, 2000.0, 10, launch="5-1")
    log(tmp_path, 9, 3000.0, 10, launch="9-1")
    assert processes(tmp_path) == [[7, 8], [9]]


def test_ranks_that_run_at_the_same_time_are_one_run(tmp_path):
    # srun and mpirun give each its own launch; the first and the last ones do not meet.
    log(tmp_path, 7, 1000.0, 10, launch="7-1", rank="0")
    log(tmp_path, 8, 1009.0, 10, launch="8-1", rank="1")
    log(tmp_path, 9, 1018.0, 10, launch="9-1", rank="2")
    assert processes(tmp_path) == [[7, 8, 9]]


def test_the_newest_run_is_shown_and_the_others_are_named(tmp_path):
    log(tmp_path, 7, 1000.0, 10, command=["python", "[i]old.py", "a b"])
    log(tmp_path, 8, 1001.0, 10, command=["python", "[i]old.py", "a b"])
    log(tmp_path, 9, 2000.0, 10)
    shown = read_folder(tmp_path)
    assert [log.about["process"] for log in shown] == [9]
    result = spillway("report", tmp_path)
    said = " ".join(result.stdout.split())
    for text in (said, (tmp_path / "report.html").read_text().replace("&#x27;", "'")):
        assert "also holds the logs of 1 earlier run: " in text
        assert "python '[i]old.py' 'a b' (7-1.spillway and 1 more). To see" in text
    assert "process 9" in said and "process 7" not in said


def test_each_log_that_is_read_is_reported(tmp_path):
    log(tmp_path, 7, 1000.0, 10)
    log(tmp_path, 8, 1001.0, 10)
    progress = []
    read(tmp_path, progress.append)
    assert progress == [
        *("reading log 1 of 2", "reading log 2 of 2"),
        *("adding up process 1 of 2", "adding up process 2 of 2"),
    ]


def test_of_many_earlier_runs_the_latest_are_named(tmp_path):
    for process in range(1, 9):
        log(tmp_path, process, 1000.0 * process, 10)
    notice = notices(digest(read_folder(tmp_path)[0]))[0]
    named = [process for process in range(1, 9) if f"({process}-1.spillway)" in notice]
    assert named == [3, 4, 5, 6, 7] and "7 earlier runs" in notice and "; and 2 before. To" in notice
    assert notice.index("(7-1.spillway)") < notice.index("(3-1.spillway)")


def test_a_folder_of_one_run_states_nothing_of_others(tmp_path):
    log(tmp_path, 7, 1000.0, 10)
    assert not any("earlier" in notice for notice in notices(digest(read_folder(tmp_path)[0])))


def test_a_rank_that_was_started_again_is_reported_from_itself(tmp_path):
    for process, rank, started in ((7, "0", 1000.0), (8, "1", 1000.0), (9, "0", 2000.0)):
        log(tmp_path, process, started, 10, rank=rank, launch="5-1")
    assert [log.name for log in read_folder(tmp_path)] == ["rank 0, process 7", "rank 0, process 9", "rank 1"]


def test_two_versions_in_a_run_are_refused_and_in_two_runs_are_not(tmp_path):
    log(tmp_path, 7, 1000.0, 10)
    log(tmp_path, 8, 1000.0, 10, spillway="0.2.0")
    with pytest.raises(ReportError, match=r"0\.1\.0 and 0\.2\.0"):
        read_folder(tmp_path)
    log(tmp_path, 8, 2000.0, 10, spillway="0.2.0")
    assert len(read_folder(tmp_path)) == 1


def test_processes_come_by_rank(tmp_path):
    synthetic.write(tmp_path / "7-1.spillway", rank="1")
    synthetic.write(tmp_path / "8-1.spillway", rank="0", process=8)
    assert [log.name for log in read_folder(tmp_path)] == ["rank 0", "rank 1"]


def test_a_rank_that_is_no_number_is_read(tmp_path):
    for process, rank in ((7, "abc"), (8, "1")):
        synthetic.write(tmp_path / f"{process}-1.spillway", process=process, rank=rank)
    assert [log.name for log in read_folder(tmp_path)] == ["rank abc", "rank 1"]


PROGRAM = "import torch; torch.ones(1000, device='cuda').sum().item()"
# What torchrun does: processes in sessions of their own, here one after the other.
LAUNCHER = """
import subprocess, sys
for _ in range(2):
    subprocess.run([sys.executable, "-c", sys.argv[1]], check=True, start_new_session=True)
"""


def test_what_one_launch_started_is_one_run_and_the_next_launch_another(tmp_path):
    for program in ([LAUNCHER, PROGRAM], [PROGRAM]):
        line = [*command(tmp_path / "out")[:-2], sys.executable, "-c", *program]
        result = subprocess.run(
            line, env=clean_environment(), capture_output=True, text=True, check=False, timeout=300
        )
        assert result.returncode == 0, result.stderr
    runs = runs_of(read_log(path) for path in (tmp_path / "out").glob("*.spillway"))
    assert [len(run) for run in runs] == [2, 1]
    assert json.loads(runs[0][0].path.read_text().splitlines()[0])["launch"] is not None
