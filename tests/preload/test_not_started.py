# SPDX-License-Identifier: Apache-2.0
"""Jobs that PyTorch does not start Spillway in: nothing is changed, and one line states the reason."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from conftest import Done, done, environment
from spillway import launch

# The emulated GPU has to be started, too: here by hand, and without the job's settings.
SCRIPT = """
import ctypes, sys, torch
sys.path.append(sys.argv[1])
from spillway import _autoload
_autoload._emulate(ctypes.CDLL(None))
x = torch.ones(3, device="cuda", requires_grad=True)
x.exp().sum().backward()
print(torch.cuda.device_count(), x.grad.tolist()[0] > 2.7, torch.cuda.get_allocator_backend())
"""


def trained(folder: Path, *options: str, **changes: str) -> Done:
    command = [sys.executable, *options, "-c", SCRIPT, str(launch.PACKAGE.parent)]
    libraries = {"LD_PRELOAD": f"{launch.SHIM}:{launch.EMULATOR}", "SPILLWAY_EMULATE": "1"}
    ours = done(command, environment(folder) | libraries | changes)
    assert (ours.status, ours.stdout) == (0, "1 True native\n"), ours.stderr
    return ours


@pytest.mark.parametrize(
    ("options", "changes"),
    [
        ([], {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "SPILLWAY_OFFLOAD_RATIO": "0.5"}),
        (["-I"], {"SPILLWAY_TAG_RATIO": "mlp=1"}),
        (["-I"], {"SPILLWAY_REPORT": "report"}),
    ],
)
def test_one_line_states_that_nothing_happens(
    options: list[str], changes: dict[str, str], tmp_path: Path
) -> None:
    said = trained(tmp_path, *options, **changes).stderr
    assert said.startswith(f"spillway: {[*changes][-1]} is set, but PyTorch has not started spillway here")
    assert said.count("\n") == 1


def test_nothing_is_printed_if_nothing_is_missing(tmp_path: Path) -> None:
    assert trained(tmp_path, "-I").stderr == ""
    assert trained(tmp_path, "-I", SPILLWAY_OFFLOAD_RATIO="0.5", SPILLWAY_DISABLE="1").stderr == ""
