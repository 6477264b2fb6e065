# SPDX-License-Identifier: Apache-2.0
"""Real programs print nothing; the exit status shows whether any process had a race."""

import os
import pathlib
import signal
import subprocess
import sys

PROGRAMS = pathlib.Path(__file__).parent / "programs"
RACE = "import races; races.missing_producer_wait(True); races.torch.cuda.synchronize()"


def last_line(done):
    return done.stderr.splitlines()[-1]


def test_a_loader_with_workers_and_pinned_memory_is_silent(checked):
    done = checked(PROGRAMS / "loader.py")
    assert (done.returncode, last_line(done)) == (0, "spillway-check: 0 races"), done.stderr


def test_two_ranks_over_gloo_are_silent(checked):
    done = checked(PROGRAMS / "ranks.py")
    assert (done.returncode, last_line(done)) == (0, "spillway-check: 0 races"), done.stderr


def test_a_report_in_one_of_two_ranks_counts(checked):
    done = checked(PROGRAMS / "ranks.py", "race")
    assert (done.returncode, last_line(done)) == (3, "spillway-check: 1 race"), done.stderr


def test_the_demonstration_is_silent(checked, tmp_path):
    done = checked("-m", "spillway.demo", "--size", "small", "--steps", "2", "--device", "emulated",
                   "--picture", tmp_path / "picture.png")  # fmt: skip
    assert (done.returncode, last_line(done)) == (0, "spillway-check: 0 races"), done.stderr


def test_a_report_gives_status_3_behind_both_operations_lines(checked):
    done = checked("-c", RACE)
    assert (done.returncode, last_line(done)) == (3, "spillway-check: 1 race"), done.stderr
    assert " in missing_producer_wait" in done.stderr


def test_a_process_whose_launcher_does_not_check_ends_with_its_own_count():
    launcher = [sys.executable, "-m", "spillway", "emulate", "--"]
    command = ["env", "SPILLWAY_EMULATE_CHECK=1", sys.executable, "-c", RACE]
    path = os.pathsep.join([str(PROGRAMS.parent), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(launcher + command, env=env, capture_output=True, text=True, timeout=300)
    assert (done.returncode, last_line(done)) == (0, "spillway-check: 1 race"), done.stderr


def test_a_failed_command_keeps_its_status(checked):
    assert checked("-c", RACE + "; raise SystemExit(7)").returncode == 7


def test_a_command_that_a_signal_ends_ends_the_launcher_so(checked):
    done = checked("-c", RACE + "; import os; os.kill(os.getpid(), 15)")
    assert done.returncode == -signal.SIGTERM
    assert last_line(done) == "spillway-check: 1 race"


def test_without_reports_the_status_is_the_commands(checked):
    done = checked("-c", "print('hello')")
    assert (done.returncode, last_line(done)) == (0, "spillway-check: 0 races")
