# SPDX-License-Identifier: Apache-2.0
"""CUDA tensors between processes through torch.multiprocessing: the same bytes, both ways."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import ctypes
import torch
import torch.multiprocessing as mp


def work(inbox, outbox):
    tensor = inbox.get()
    outbox.put((str(tensor.device), tensor.sum().item()))
    tensor.mul_(2)
    torch.cuda.synchronize()
    del tensor
    outbox.put("done")
    inbox.get()


if __name__ == "__main__":
    context = mp.get_context("spawn")
    inbox, outbox = context.Queue(), context.Queue()
    child = context.Process(target=work, args=(inbox, outbox))
    child.start()
    tensor = torch.arange(1000.0, device="cuda")
    inbox.put(tensor[10:])
    print(*outbox.get(timeout=120))
    assert outbox.get(timeout=120) == "done"
    print(tensor[9].item(), tensor[10].item(), tensor[999].item())
    inbox.put("end")
    child.join(120)
    print("exit", child.exitcode)
    print([ctypes.CDLL(None).spillway_emulator_count(name) > 0
           for name in (b"cudaIpcGetMemHandle", b"cuMemExportToShareableHandle", b"cudaIpcGetEventHandle")])
"""


@pytest.mark.parametrize("expandable", [False, True])
def test_two_processes_share_a_tensor(tmp_path, expandable):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, str(program)],
        env=os.environ | {"PYTORCH_CUDA_ALLOC_CONF": f"expandable_segments:{expandable}"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == [
        f"cuda:0 {float(sum(range(10, 1000)))}",
        "9.0 20.0 1998.0",
        "exit 0",
        str([not expandable, expandable, True]),
    ]
