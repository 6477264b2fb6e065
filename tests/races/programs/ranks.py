# SPDX-License-Identifier: Apache-2.0
"""Two ranks train with DistributedDataParallel over gloo. With `race`, the second one also races."""

import os
import sys
import tempfile

import torch
import torch.distributed
import torch.multiprocessing
from torch.nn.parallel import DistributedDataParallel


def rank_main(rank, store, racy):
    torch.distributed.init_process_group("gloo", f"file://{store}", rank=rank, world_size=2)
    model = DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 1)).cuda()
    )
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        inputs = torch.ones(4, 64).pin_memory().cuda(non_blocking=True)
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
    if racy and rank == 1:
        import races

        races.missing_producer_wait(True)
    torch.cuda.synchronize()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        arguments = (os.path.join(folder, "store"), "race" in sys.argv)
        torch.multiprocessing.spawn(rank_main, arguments, nprocs=2)
