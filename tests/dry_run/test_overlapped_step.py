# SPDX-License-Identifier: Apache-2.0
"""The optimizer's step overlaps with the next forward pass where model state leaves the GPU."""

import re
import sys

from launched import spillway

PROGRAM = """
import torch

torch.manual_seed(0)
model = torch.nn.Sequential(*(torch.nn.Linear(2048, 2048) for _ in range(24))).cuda()  # 384 MiB
optimizer = torch.optim.AdamW(model.parameters())


def event():
    made = torch.cuda.Event(enable_timing=True)
    made.record()
    return made


for _ in range(4):
    model(torch.randn(4096, 2048, device="cuda")).sum().backward()
    before = event()
    optimizer.step()
    optimizer.zero_grad()
    after = event()
    torch.cuda.synchronize()
    done = event()
torch.cuda.synchronize()
print("of the stream:", before.elapsed_time(after), "of the device:", before.elapsed_time(done))
import spillway
print("slices:", spillway.stats()["model_state"]["overlapped_slices"])
"""


def run(tmp_path, budget):
    (tmp_path / "program.py").write_text(PROGRAM)
    done = spillway("dry-run", "h200", f"--budget={budget}", "--", sys.executable, tmp_path / "program.py")
    of_stream, of_device = map(float, re.search(r"stream: (\S+) of the device: (\S+)", done.stdout).groups())
    return of_stream, of_device, int(re.search(r"slices: (\d+)", done.stdout)[1])


def test_the_stream_continues_while_states_come_and_go(tmp_path):
    of_stream, of_device, slices = run(tmp_path, "1200MiB")
    assert slices > 0
    assert of_stream < of_device / 2


def test_a_step_that_fits_stays_on_the_stream(tmp_path):
    of_stream, of_device, slices = run(tmp_path, "4GiB")
    assert slices == 0
    assert of_stream > 0.9 * of_device
