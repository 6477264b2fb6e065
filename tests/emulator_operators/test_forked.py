# SPDX-License-Identifier: Apache-2.0
"""Processes that are forked from one that has imported torch are as ones of their own."""

import os
import subprocess

import pytest
from forked import fits

BLOCK = "import torch; print(torch.cuda.device_count(), torch.ones(3, device='cuda').sum().item())"


def test_settings_are_read_after_the_fork(to_fork):
    for count in ("2", "3"):
        done = to_fork.run(BLOCK, environment={**os.environ, "SPILLWAY_EMULATE_DEVICES": count})
        assert (done.returncode, done.stdout, done.stderr) == (0, f"{count} 3.0\n", "")


def test_the_end_of_a_program_is_its_own(to_fork):
    raised = to_fork.run("raise ValueError('mine')")
    assert raised.returncode == 1 and raised.stderr.endswith("\nValueError: mine\n")
    assert to_fork.run("import sys; sys.exit(7)").returncode == 7
    assert to_fork.run("import os; os.kill(os.getpid(), 15)").returncode == -15
    assert to_fork.run("import time; time.sleep(60)", timeout=0.01).returncode == -9
    late = to_fork.run("import atexit; atexit.register(print, 'last'); print('first')")
    assert (late.returncode, late.stdout) == (0, "first\nlast\n")


def test_nothing_of_one_run_is_in_the_next(to_fork):
    first = (
        "import os, sys, torch; os.environ['LEFT'] = '1'; sys.left = torch.ones(1, device='cuda'); left = 1"
    )
    assert to_fork.run(first).returncode == 0
    then = "import os, sys; print('LEFT' in os.environ, hasattr(sys, 'left'), 'left' in globals(), sys.argv)"
    assert to_fork.run(then, ["x"]).stdout == "False False False ['-c', 'x']\n"


def test_checks_of_the_emulated_gpu_are_reported_at_the_end(to_fork):
    done = to_fork.run(BLOCK, environment={**os.environ, "SPILLWAY_EMULATE_CHECK": "1"})
    assert (done.returncode, done.stderr) == (0, "spillway-check: 0 races\n")


@pytest.mark.parametrize(
    ("name", "can"),
    [("SPILLWAY_EMULATE_MEMORY", True), ("SPILLWAY_TAG_RATIO", False), ("LD_PRELOAD", False)],
)
def test_what_is_read_before_needs_a_process_that_starts(name, can):
    assert fits({**os.environ, name: "1"}) == can


@pytest.mark.parametrize("changes", [{}, {"LANG": "xx"}])
def test_a_stand_in_is_heard_and_ends_as_its_program_which_is_forked_if_its_environment_fits(
    to_fork, changes, tmp_path
):
    program = tmp_path / "program.py"
    program.write_text(
        "import os, sys\n"
        "print('torch' in sys.modules, sys.argv[1:], sys.stdin.read(), __file__, sys.path[0], flush=True)\n"
        "print('error', file=sys.stderr, flush=True)\n"
        "sys.exit(7) if sys.argv[1] == '7' else os.kill(os.getpid(), 15)\n"
    )
    for status in (7, -15):
        command = to_fork.stand_in(program, status, "b c")
        environment = os.environ | to_fork.variables | changes
        done = subprocess.run(command, env=environment, input="in", capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (status, "error\n")
        assert done.stdout == f"{not changes} {[str(status), 'b c']} in {program} {tmp_path}\n"
