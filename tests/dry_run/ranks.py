# SPDX-License-Identifier: Apache-2.0
"""A program of several ranks that does not use Spillway. The first one prints what it found, as JSON."""

import json
import sys

import torch
import torch.distributed as dist
from torch import nn

BYTES = 1 << 30
WIDTH, LAYERS, ROWS = 4096, 4, 16384


def milliseconds(operation):
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    operation()
    end.record()
    end.synchronize()
    return start.elapsed_time(end)


def times():
    full = torch.empty(BYTES, dtype=torch.uint8, device="cuda")
    part = torch.empty(BYTES // dist.get_world_size(), dtype=torch.uint8, device="cuda")
    floats = full.view(torch.float32)
    parts = list(full.chunk(dist.get_world_size()))
    dist.all_reduce(full)  # makes the streams
    return {
        "all_reduce": milliseconds(lambda: dist.all_reduce(full)),
        "average": milliseconds(lambda: dist.all_reduce(floats, dist.ReduceOp.AVG)),
        "all_gather": milliseconds(lambda: dist.all_gather(parts, part)),
        "all_gather_into_tensor": milliseconds(lambda: dist.all_gather_into_tensor(full, part)),
        "reduce_scatter": milliseconds(lambda: dist.reduce_scatter(part, parts)),
        "reduce_scatter_tensor": milliseconds(lambda: dist.reduce_scatter_tensor(part, full)),
        "all_to_all_single": milliseconds(lambda: dist.all_to_all_single(torch.empty_like(full), full)),
        "broadcast": milliseconds(lambda: dist.broadcast(full, 0)),
        "reduce": milliseconds(lambda: dist.reduce(full, 0)),
    }


def values():
    counts = torch.full((4,), dist.get_rank() + 1.0, device="cuda")
    dist.all_reduce(counts)
    gathered = [torch.empty(1, device="cuda") for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, torch.tensor([10.0 * dist.get_rank()], device="cuda"))
    sent = [None] * dist.get_world_size()
    dist.all_gather_object(sent, {"rank": dist.get_rank()})
    dist.barrier()
    return {"sum": counts.tolist(), "gathered": [each.item() for each in gathered], "objects": sent}


def overlap():
    """A product beside an all_reduce, and after it."""
    a = torch.empty(WIDTH, WIDTH, device="cuda")
    full = torch.empty(BYTES, dtype=torch.uint8, device="cuda")
    dist.all_reduce(full)

    def beside():
        work = dist.all_reduce(full, async_op=True)
        for _ in range(100):
            a @ a
        work.wait()

    def after():
        dist.all_reduce(full)
        for _ in range(100):
            a @ a

    return {"beside": milliseconds(beside), "after": milliseconds(after)}


def train(wrap):
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS))).cuda()
    if wrap == "sharded":
        from torch.distributed.fsdp import fully_shard

        for layer in model:
            fully_shard(layer)
        fully_shard(model)
    else:
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        model(torch.empty(ROWS, WIDTH, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def main():
    dist.init_process_group("nccl")
    torch.cuda.set_device(dist.get_rank())
    what = sys.argv[1]
    if what == "collectives":
        found = {"times": times(), "values": values(), "overlap": overlap()}
    else:
        found = train(what)
    if dist.get_rank() == 0:
        print(json.dumps(found), flush=True)
    dist.destroy_process_group()


main()
