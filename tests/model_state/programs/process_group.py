# SPDX-License-Identifier: Apache-2.0
"""Model state that was managed before a process group existed: from then on it stays on the GPU."""

import os

import torch
from cases import case, main, managed_stats
from torch import distributed, nn


def bytes_that_stay():
    return (managed_stats() or {}).get("resident_reasons", {}).get("process_group", {}).get("bytes", 0)


@case
def a_process_group_begins_after_the_model():
    model = nn.Linear(64, 64).cuda()
    first = [model(torch.ones(4, 64).cuda()).sum().item() for _ in range(8)]
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        second = model(torch.ones(4, 64).cuda()).sum().item()
        copied = (managed_stats() or {}).get("copied_bytes")
        model(torch.ones(4, 64).cuda()).sum().backward()
        assert (managed_stats() or {}).get("copied_bytes") == copied
        flat = torch.zeros(4096, device="cuda", requires_grad=True)  # of no module, as DeepSpeed has them
        flat.grad = torch.ones_like(flat)
        stayed = bytes_that_stay()
        optimizer = torch.optim.AdamW([flat])
        optimizer.step()
        if copied is not None:
            assert bytes_that_stay() - stayed == 4 * flat.nbytes  # with its gradient and two states
    finally:
        distributed.destroy_process_group()
    return first, second, model, flat


main()
