# SPDX-License-Identifier: Apache-2.0
"""Trains two steps and leaves a trace and a copy of its statistics page in the folder that is given."""

import os
import shutil
import sys
from pathlib import Path

import spillway
import torch
from spillway.top import pages
from torch import nn


def main(folder: Path) -> None:
    model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64)).to("cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with spillway.memory.record_trace(folder / "trace"):
        for _ in range(3):
            model(torch.ones(32, 64, device="cuda")).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    page = pages.path_of(os.getpid())
    assert page is not None
    shutil.copy(page, folder / "page")


main(Path(sys.argv[1]))
