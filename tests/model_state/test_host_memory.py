# SPDX-License-Identifier: Apache-2.0
"""Too little pinned host memory for model state: a warning reports how much is needed and for what."""

import json
import os
import re
import subprocess
import sys
from functools import cache

from conftest import PROGRAMS


@cache
def run(*options, limit=None):
    command = [sys.executable, "-m", "spillway", "emulate", *options, "--", sys.executable]
    done = subprocess.run(
        [*command, str(PROGRAMS / "short_host.py")],
        env=os.environ | ({"SPILLWAY_PINNED_LIMIT": limit} if limit else {}),
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return dict(line.split(": ", 1) for line in done.stdout.splitlines() if ": " in line)


BUDGET = ("--budget=112MiB", "--over-budget=warn")


def shortages(found):
    return [each for each in json.loads(found["warnings"]) if "model state stays on the GPU" in each]


def test_a_shortage_is_reported_once_with_the_need_and_what_there_is():
    (said,) = shortages(run(*BUDGET, limit="32MiB"))
    assert "SPILLWAY_PINNED_LIMIT is 32.00 MiB" in said
    # 16 weights of 4 MiB as parameters, gradients and two states, and biases.
    need = float(re.search(r"needs up to ([\d.]+) MiB of pinned host memory", said)[1])
    assert 4 * 64 <= need < 4 * 64 + 8  # at most all activations
    for name in ("parameters 64.1 MiB", "gradients", "optimizer states 128.1 MiB", "activations"):
        assert name in said


def test_with_enough_host_memory_nothing_is_reported():
    assert shortages(run(*BUDGET)) == []


def test_a_shortage_changes_no_bits():
    assert run(*BUDGET, limit="32MiB")["losses"] == run()["losses"]
