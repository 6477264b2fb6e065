# SPDX-License-Identifier: Apache-2.0
"""One rank of a job of two: trains over pipeline schedules and data parallel, with and without moving."""

import contextlib
import datetime
import os

import spillway
import torch
import torch.distributed as dist
from cases.measure import Copied, same, unordered
from torch import nn
from torch.distributed import pipelining
from torch.nn.parallel import DistributedDataParallel

RANKS = 2
WIDTH = 64
BATCHES = 4
SCHEDULES = {  # and how many stages each rank has
    "GPipe": 1,
    "1F1B": 1,
    "Interleaved1F1B": 2,
    "InterleavedZeroBubble": 2,
    "ZBVZeroBubble": 2,
}
NAMES = (*SCHEDULES, "DistributedDataParallel")


class Stage(pipelining.PipelineStage):
    """Sends its first message to other ranks only: gloo cannot send to its own rank."""

    def _get_init_p2p_neighbors_ops(self):
        return [op for op in super()._get_init_p2p_neighbors_ops() if op.group_peer != self.group_rank]


def part(seed, checkpointed):
    torch.manual_seed(seed)
    layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(2)]
    if checkpointed:
        layers = [spillway.checkpoint_wrapper(layer) for layer in layers]
    return nn.Sequential(*layers).cuda()


def data(seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(16 * BATCHES, WIDTH, generator=generator).cuda()


def pipeline(name, rank, micro, checkpointed):
    """Gradients of this rank's stages after three steps."""
    count = SCHEDULES[name]
    numbers = [rank + RANKS * each for each in range(count)]
    if name == "ZBVZeroBubble":  # there and back again: the last rank has two neighbors
        numbers = [rank, 2 * RANKS - 1 - rank]
    parts = [part(number, checkpointed) for number in numbers]
    stages = [
        Stage(one, number, count * RANKS, torch.device("cuda:0"))
        for one, number in zip(parts, numbers, strict=True)
    ]
    for stage in stages if micro else ():
        micro.attach(stage)
    schedule = getattr(pipelining, f"Schedule{name}")(
        stages if count > 1 else stages[0], BATCHES, loss_fn=lambda y, target: (y * target).sum()
    )
    options = {"target": data(2)} if count * RANKS - 1 in numbers else {}
    inputs = (data(1),) if 0 in numbers else ()
    for _ in range(3):
        for one in parts:
            one.zero_grad()
        with micro or contextlib.nullcontext():
            schedule.step(*inputs, **options)
    return [p.grad for one in parts for p in one.parameters()]


def data_parallel(rank, micro, checkpointed):
    net = DistributedDataParallel(part(0, checkpointed))
    batches = data(rank).chunk(BATCHES)
    for _ in range(3):
        net.zero_grad()
        with micro or contextlib.nullcontext():
            losses = []
            for number, batch in enumerate(batches):
                alone = net.no_sync() if number < BATCHES - 1 else contextlib.nullcontext()
                with alone, micro.batch() if micro else contextlib.nullcontext():
                    y = net(batch * 1)
                losses.append(y.sum())
                del y
            for loss in losses:
                loss.backward()
    return [p.grad for p in net.parameters()]


def train(name, rank, micro=None, checkpointed=False):
    if name in SCHEDULES:
        return pipeline(name, rank, micro, checkpointed)
    return data_parallel(rank, micro, checkpointed)


def run():
    """Of each name, with and without checkpoints: equality with the plain bits, and the offloaded bytes."""
    rank = int(os.environ["RANK"])
    spillway.use_allocator()
    dist.init_process_group(
        "gloo",
        init_method=os.environ["RENDEZVOUS"],
        rank=rank,
        world_size=RANKS,
        timeout=datetime.timedelta(seconds=60),
    )
    found = {}
    for name in NAMES:
        plain = train(name, rank)
        for checkpointed in (True, False):
            micro = spillway.microbatches(activation_loading_horizon=2)
            with Copied() as copied:
                equal = same(train(name, rank, micro, checkpointed), plain)
            found[f"{name} {checkpointed}"] = (equal, copied.out, copied.back)
    torch.cuda.synchronize()
    dist.destroy_process_group()
    return found, unordered()
