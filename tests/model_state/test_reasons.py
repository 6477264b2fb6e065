# SPDX-License-Identifier: Apache-2.0
"""Statistics name each reason for which model state stays on the GPU, with its storages and bytes."""

import json
import os
import subprocess
import sys

import pytest
from conftest import PROGRAMS

BYTES = 4 * 64 * 64
SIZES = {
    "tiny": 4 * 4,
    "sparse": 4 * 256 * 64,
    "address_in_use": BYTES,
    "data_ptr": BYTES,
    "referenced_elsewhere": BYTES,
    "cuda_graph": BYTES,
    "no_host_memory": BYTES,
}


def lines(*arguments, **environment):
    command = [sys.executable, "-m", "spillway", "emulate", "--budget=1GiB", "--", sys.executable]
    done = subprocess.run(
        [*command, str(PROGRAMS / "reasons.py"), *arguments],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return dict(line.split(": ", 1) for line in done.stdout.splitlines() if ": " in line)


@pytest.mark.parametrize("reason", SIZES)
def test_a_storage_that_stays_is_counted_by_its_reason(reason):
    environment = {"SPILLWAY_PINNED_LIMIT": "4KiB"} if reason == "no_host_memory" else {}
    found = json.loads(lines(reason, **environment)["reasons"])
    assert found == {reason: {"storages": 1, "bytes": SIZES[reason]}}


def test_storages_that_may_leave_have_no_reason_and_whole_optimizers_are_named():
    found = lines()
    assert "reasons" not in found
    assert list(json.loads(found["whole"])) == ["torch.optim.lbfgs.LBFGS"]
