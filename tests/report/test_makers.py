# SPDX-License-Identifier: Apache-2.0
"""The operator that a report names as maker of an offloaded storage: it computed the bytes, through views."""

from __future__ import annotations

import subprocess
import sys

from launched import clean_environment
from spillway.report.digests import digest
from spillway.report.log import read_log

SOURCE = """
import torch
from torch import nn

x = torch.randn(4, 32, 64, device="cuda", requires_grad=True)
first, second = nn.Linear(64, 96).cuda(), nn.Linear(96, 64).cuda()
made = first(x)  # addmm, then a view of it
half = second(made.unsqueeze(0).squeeze(0)).split(2, dim=1)[1]
half.sin().sum().backward()
"""


def test_the_maker_is_no_view(tmp_path):
    command = [
        sys.executable,
        "-m",
        "spillway",
        "emulate",
        "--ratio",
        "1",
        "--report",
        str(tmp_path),
    ]
    subprocess.run([*command, "--", sys.executable, "-c", SOURCE], env=clean_environment(), check=True)
    (path,) = tmp_path.glob("*.spillway")
    made_by = {site.bytes: site.made_by for site in digest(read_log(path)).sites}
    assert made_by[4 * 32 * 96 * 4] == ["Addmm"]
    assert not {"", "View", "UnsafeView", "Transpose", "Split", "Squeeze"} & {
        name for names in made_by.values() for name in names
    }


def test_a_program_may_lie_in_folders_of_the_libraries_names(tmp_path):
    program = tmp_path / "torch" / "spillway" / "train.py"
    program.parent.mkdir(parents=True)
    program.write_text(SOURCE)
    folder = tmp_path / "out"
    command = [sys.executable, "-m", "spillway", "emulate", "--ratio", "1", "--report", folder, "--"]
    subprocess.run([*command, sys.executable, program], env=clean_environment(), check=True)
    (path,) = folder.glob("*.spillway")
    lines = {line for site in digest(read_log(path)).sites for line in site.lines}
    assert lines and all(line.startswith(f"{program}:") for line in lines)
