# SPDX-License-Identifier: Apache-2.0
"""One rank of a job of two: DistributedDataParallel and tensor parallel, with and without moving."""

import contextlib
import datetime
import os

import spillway
import torch
import torch.distributed as dist
from cases.measure import Moved, same_bits, save, unordered
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

RANKS = 2
NAMES = ("all used", "some unused", "tensor parallel", "one sharded tensor")


class Branches(nn.Module):
    """Of two branches one runs in each step, and the other has no gradient there."""

    def __init__(self, both):
        super().__init__()
        torch.manual_seed(0)
        self.both = both
        self.branches = nn.ModuleList(
            nn.Sequential(nn.Linear(64, 256), nn.Sigmoid(), nn.Linear(256, 64)) for _ in range(2)
        )

    def forward(self, x, step):
        if self.both:
            return self.branches[0](x) + self.branches[1](x)
        return self.branches[step % 2](x)


def data(rank, step):
    return torch.randn(128, 64, generator=torch.Generator().manual_seed(10 * step + rank)).cuda()


def parallel_data(name, rank, region):
    unused = name == "some unused"
    model = DistributedDataParallel(Branches(not unused).cuda(), find_unused_parameters=unused)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        with region:
            loss = model(data(rank, step), step).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return [parameter.detach().clone() for parameter in model.parameters()]


def parallel_tensors(name, rank, region):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.Sigmoid(), nn.Linear(256, 64)).cuda()
    mesh = init_device_mesh("cuda", (RANKS,))
    parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    for step in range(3):
        with region:
            loss = model(data(0, step)).square().mean()
        loss.backward()
    return [parameter.grad.to_local().clone() for parameter in model.parameters()]


def one_sharded_tensor(name, rank, region):
    mesh = init_device_mesh("cuda", (RANKS,))
    sharded = DTensor.from_local(data(rank, 0), mesh, [Shard(1)])
    expected, strides = sharded.shape, sharded.stride()
    seen = []
    before = torch.cuda.memory_allocated()
    with region:
        graph = save(seen, sharded)
    del sharded
    torch.cuda.synchronize()
    moves = isinstance(region, spillway.CPUOffload)
    if moves and spillway.stats()["ours"]:
        assert torch.cuda.memory_allocated() < before  # nothing of it is left on the device
    graph.backward()
    (back,) = seen
    assert type(back) is DTensor and back.placements == (Shard(1),) and back.device_mesh == mesh
    assert (back.shape, back.stride(), back.requires_grad) == (expected, strides, False)
    return [back.to_local()]


TRAIN = {"tensor parallel": parallel_tensors, "one sharded tensor": one_sharded_tensor}


def run(allocator):
    """For each name: whether the bits are those of the plain job, and the bytes that moved out and back; and
    what was not ordered."""
    if allocator == "spillway":
        spillway.use_allocator()
    rank = int(os.environ["RANK"])
    dist.init_process_group(
        "gloo",
        init_method=os.environ["RENDEZVOUS"],
        rank=rank,
        world_size=RANKS,
        timeout=datetime.timedelta(seconds=120),
    )
    found = {}
    for name in NAMES:
        train = TRAIN.get(name, parallel_data)
        expected = train(name, rank, contextlib.nullcontext())
        with Moved() as moved:
            got = train(name, rank, spillway.CPUOffload(1, tag=name))
        found[name] = (all(map(same_bits, got, expected)), moved.out, moved.back)
    dist.barrier()
    dist.destroy_process_group()
    return found, unordered()
