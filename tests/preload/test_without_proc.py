# SPDX-License-Identifier: Apache-2.0
"""Jobs on a system, or in a sandbox, without /proc."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import done, environment

WITHOUT_PROC = [
    "unshare",
    "--map-root-user",
    "--mount",
    "sh",
    "-c",
    'mount -t tmpfs none /proc && exec "$@"',
    "sh",
]

JOB = """
import torch
x = torch.ones(1 << 20, device="cuda", requires_grad=True)
(x.exp() * 2).sum().backward()
print(x.grad.sum().item() > 5e6)
"""


@pytest.fixture(autouse=True)
def _mounts_are_permitted() -> None:
    if subprocess.run([*WITHOUT_PROC, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this system permits no mount")


@pytest.mark.parametrize("options", [["--ratio", "0.5"], ["--budget", "1GiB"], []])
def test_a_job_runs_as_elsewhere(options: list[str], tmp_path: Path) -> None:
    launcher = [sys.executable, "-m", "spillway", "emulate", *options, "--"]

    ours = done([*WITHOUT_PROC, *launcher, sys.executable, "-c", JOB], environment(tmp_path))

    assert (ours.status, ours.stdout) == (0, "True\n"), ours.stderr
