# SPDX-License-Identifier: Apache-2.0
"""Code that dereferences an offloaded storage's address faults, and the report names the tensor."""

import subprocess
import sys

PROGRAM = """
import ctypes
import torch
from torch import nn
from spillway._load import glue
from spillway._operator_need import name_model_state

model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64)).to("cuda")
name_model_state()
offloaded = glue().offload_model_state()
assert offloaded
at = model[1].weight.untyped_storage().data_ptr()
ctypes.string_at(at + 64 * 64 * 4 - 4, 4)
"""


def test_a_fault_of_the_host_names_the_tensor():
    command = [sys.executable, "-m", "spillway", "emulate", "--budget=1GiB", "--", sys.executable]
    done = subprocess.run([*command, "-c", PROGRAM], capture_output=True, text=True, timeout=300)
    assert done.returncode != 0
    (line,) = [each for each in done.stderr.splitlines() if "spillway-emulator:" in each]
    assert "parameters: 1.weight (16.00 KiB)" in line
    assert "keep_on_device" in line
