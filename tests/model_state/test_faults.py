# SPDX-License-Identifier: Apache-2.0
"""Code that dereferences an offloaded storage's address faults, and the report names the tensor."""

import subprocess
import sys

import pytest

PROGRAM = """
import ctypes
import torch
from torch import nn
from spillway._load import glue
from spillway._operator_need import name_model_state

model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64)).to("cuda")
name_model_state()
assert glue().offload_model_state()
"""
ACCESSES = {
    "host": """
at = model[1].weight.untyped_storage().data_ptr()
ctypes.string_at(at + 64 * 64 * 4 - 4, 4)
""",
    "operator": """
unguarded = torch._C.DispatchKeySet(torch._C.DispatchKey.Undefined)
for key in glue().dispatch_keys():
    unguarded = unguarded | torch._C.DispatchKeySet(torch._C.DispatchKey(key))
with torch.no_grad(), torch._C._ExcludeDispatchKeyGuard(unguarded):
    print((model[1].weight * 2).sum().item())
""",
}


@pytest.mark.parametrize("access", ACCESSES)
def test_a_fault_names_the_tensor(access):
    command = [sys.executable, "-m", "spillway", "emulate", "--budget=1GiB", "--", sys.executable]
    program = PROGRAM + ACCESSES[access]
    done = subprocess.run([*command, "-c", program], capture_output=True, text=True, timeout=300)
    assert done.returncode != 0
    line = next(each for each in done.stderr.splitlines() if "spillway-emulator:" in each)
    assert "parameters: 1.weight (16.00 KiB)" in line
    assert "keep_on_device" in line
