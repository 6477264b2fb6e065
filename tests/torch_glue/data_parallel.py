# SPDX-License-Identifier: Apache-2.0
"""One rank of a job of two: DistributedDataParallel and tensor parallel, with and without moving."""

import contextlib
import datetime
import os

import spillway
import torch
import torch.distributed as dist
from cases.measure import Copied, last, same_bits, save, unordered
from spillway._region import Region
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

RANKS = 2
WIDTHS = (256, 640, 384, 128, 512)
NAMES = (
    "all used",
    "some unused",
    "half of the bytes",
    "within a budget",
    "tensor parallel",
    "tensor parallel in micro-batches",
    "tensor parallel in checkpointed micro-batches",
    "one sharded tensor",
    "one sharded parameter",
    "checkpoints in a replica",
    "checkpoints of sharded parameters",
)

moved_in_steps = {}  # by name


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


def choosing(name, rank, region):
    """Each rank chooses from its storages for itself, from the second step on by a plan."""
    torch.manual_seed(0)
    layers = (nn.Sequential(nn.Linear(64, width), nn.Sigmoid(), nn.Linear(width, 64)) for width in WIDTHS)
    net = nn.Sequential(*layers).cuda()

    def step(model, number, region):
        with region:
            loss = model(data(rank, number)).square().mean()
        loss.backward()

    model = DistributedDataParallel(net)
    if isinstance(region, spillway.CPUOffload):
        region = spillway.CPUOffload(0.5, tag=name)
        if name == "within a budget":
            torch.cuda.reset_peak_memory_stats()
            with contextlib.suppress(spillway.BudgetError):  # and the replica is as good as before
                step(model, 0, spillway.offload(budget=1, recompute=False, tag=name))
            least = torch.cuda.max_memory_allocated()
            # Beside workspaces so little is left that pages alone may exceed it.
            region = spillway.offload(
                budget=least + (64 << 10), recompute=False, tag=name, over_budget="warn"
            )
            model.zero_grad()
    moved_in_steps[name] = []
    for number in range(6):
        step(model, number, region)
        if isinstance(region, Region):
            moved_in_steps[name].append(last(name)["offloaded_bytes"])
        if number < 5:
            model.zero_grad()
    return [parameter.grad.clone() for parameter in model.parameters()]


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
    if moves and spillway.stats()["uses_spillway"]:
        assert torch.cuda.memory_allocated() < before  # none of it is left on the device
    graph.backward()
    (back,) = seen
    assert type(back) is DTensor and back.placements == (Shard(1),) and back.device_mesh == mesh
    assert (back.shape, back.stride(), back.requires_grad) == (expected, strides, False)
    return [back.to_local()]


def one_sharded_parameter(name, rank, region):
    mesh = init_device_mesh("cuda", (RANKS,))
    parameter = nn.Parameter(distribute_tensor(data(0, 0), mesh, [Shard(0)]))
    with region, Copied() as copied:
        graph = save(seen := [], parameter, data(rank, 1))
    torch.cuda.synchronize()
    if isinstance(region, spillway.CPUOffload):
        assert copied.out == 128 * 64 * 4  # of the other tensor
    graph.backward()
    return [seen[0].to_local(), seen[1]]


def micro_batches_of_parallel_tensors(name, rank, region):
    torch.manual_seed(0)
    net = nn.Sequential(
        *(nn.Sequential(nn.Linear(64, 256), nn.Sigmoid(), nn.Linear(256, 64)) for _ in range(2))
    )
    mesh = init_device_mesh("cuda", (RANKS,))
    for block in net.cuda():
        parallelize_module(block, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
        if "checkpointed" in name:
            spillway.checkpoint_wrapper(block)
    moves = isinstance(region, spillway.CPUOffload)
    micro = spillway.microbatches(offload_activations=moves, activation_loading_horizon=1)
    for step in range(2):
        with micro:
            losses = []
            for number in range(4):
                with micro.batch():
                    losses.append(net(data(0, 4 * step + number) * 1).square().mean())
            torch.cuda.synchronize()
            for loss in losses:
                loss.backward()
    return [parameter.grad.to_local().clone() for parameter in net.parameters()]


def checkpointed(name, rank, region):
    torch.manual_seed(0)
    net = nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.Tanh()) for _ in range(3))).cuda()
    moves = isinstance(region, spillway.CPUOffload)
    for block in net:
        if moves:
            spillway.checkpoint_wrapper(block, offload_to_cpu=True)
    if name == "checkpoints in a replica":
        model = DistributedDataParallel(net)
    else:
        mesh = init_device_mesh("cuda", (RANKS,))
        for block in net:
            fully_shard(block, mesh=mesh)
        model = fully_shard(net, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        model(data(rank, step) * 1).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    local = (p.to_local() if isinstance(p, DTensor) else p for p in model.parameters())
    return [parameter.detach().clone() for parameter in local]


TRAIN = {
    "half of the bytes": choosing,
    "within a budget": choosing,
    "tensor parallel": parallel_tensors,
    "tensor parallel in micro-batches": micro_batches_of_parallel_tensors,
    "tensor parallel in checkpointed micro-batches": micro_batches_of_parallel_tensors,
    "one sharded tensor": one_sharded_tensor,
    "one sharded parameter": one_sharded_parameter,
    "checkpoints in a replica": checkpointed,
    "checkpoints of sharded parameters": checkpointed,
}


def run(allocator):
    """For each name: whether the bits are those of the plain job, the bytes copied out and back, and
    those of each step, where there was a choice; and what was not ordered.
    """
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
        with Copied() as copied:
            got = train(name, rank, spillway.CPUOffload(1, tag=name))
        found[name] = (all(map(same_bits, got, expected)), copied.out, copied.back, moved_in_steps.get(name))
    dist.barrier()
    dist.destroy_process_group()
    return found, unordered()
