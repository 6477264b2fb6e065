# SPDX-License-Identifier: Apache-2.0
"""Jobs of several processes over gloo, each rank with an emulated device of its own."""

import contextlib
import ctypes
import functools
import os

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional_collectives
import torch.nn.functional as F
from models import GPT, VOCABULARY
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from training import random, train


@contextlib.contextmanager
def job(backend="gloo"):
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group(backend, init_method=os.environ["RENDEZVOUS"], rank=rank, world_size=world)
    torch.cuda.set_device(rank)
    try:
        yield rank, world
    finally:
        dist.destroy_process_group()


def reports():
    """How often the order checker found two unordered operations."""
    count = ctypes.CDLL(None).spillway_emulator_count
    count.restype = ctypes.c_uint64
    return count(b"unordered")


def fit_gpt(kind):
    with job() as (rank, _):
        device = f"cuda:{rank}" if kind == "cuda" else "cpu"
        torch.manual_seed(0)
        model = DistributedDataParallel(GPT(dropout=0.0).to(device))

        def loss_of(model, step):
            tokens = random(4, 17, seed=2 * step + rank, below=VOCABULARY).to(device)
            return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())

        done = train(model, torch.optim.AdamW(model.parameters(), lr=3e-3), loss_of)
        return done | {"reports": reports()}


LATE = {"SPILLWAY_EMULATE_SCHEDULE": "late", "SPILLWAY_EMULATE_CHECK": "1"}


@pytest.fixture(scope="module")
def on_the_cpu(ranks):
    """The result of a function's job on the CPU."""
    return functools.cache(lambda function: ranks(2, function, "cpu"))


def test_data_parallel_ranks_agree_and_have_the_bits_of_a_cpu_job(ranks, on_the_cpu):
    there = ranks(2, fit_gpt, "cuda", **LATE)
    assert there[0]["state"] == there[1]["state"]
    assert there[0]["losses"] != there[1]["losses"]
    assert there == on_the_cpu(fit_gpt)


def arrived(rank, length=4, offset=0):
    """A tensor that comes late: its copy is still under way, and only the current stream waits for it."""
    host = (torch.arange(float(length)) + 100 * rank + offset).pin_memory()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        tensor = host.to(torch.cuda.current_device(), non_blocking=True)
    torch.cuda.current_stream().wait_stream(side)
    tensor.record_stream(torch.cuda.current_stream())
    return tensor


def all_reduce(make, rank, world):
    tensor = make(rank)
    dist.all_reduce(tensor)
    return [tensor]


def all_reduce_later(make, rank, world):
    tensor = make(rank)
    work = dist.all_reduce(tensor, op=dist.ReduceOp.MAX, async_op=True)
    work.wait()
    return [tensor]


def broadcast(make, rank, world):
    tensor = make(rank)
    dist.broadcast(tensor, 1)
    return [tensor]


def reduce(make, rank, world):
    tensor = make(rank)
    dist.reduce(tensor, 1)
    return [tensor] if rank == 1 else []


def all_gather(make, rank, world):
    gathered = [make(9) for _ in range(world)]
    dist.all_gather(gathered, make(rank))
    return gathered


def all_gather_into_tensor(make, rank, world):
    gathered = make(9, 4 * world)
    dist.all_gather_into_tensor(gathered, make(rank))
    return [gathered]


def reduce_scatter(make, rank, world):
    mine = make(9)
    dist.reduce_scatter(mine, [make(rank, 4, 10 * part) for part in range(world)])
    return [mine]


def reduce_scatter_tensor(make, rank, world):
    mine = make(9)
    dist.reduce_scatter_tensor(mine, make(rank, 4 * world))
    return [mine]


def gather(make, rank, world):
    gathered = [make(9) for _ in range(world)] if rank == 1 else None
    dist.gather(make(rank), gathered, 1)
    return gathered or []


def scatter(make, rank, world):
    mine = make(9)
    dist.scatter(mine, [make(rank, 4, 10 * part) for part in range(world)] if rank == 1 else None, 1)
    return [mine]


def all_to_all_single(make, rank, world):
    received = make(9, 4 * world)
    dist.all_to_all_single(received, make(rank, 4 * world))
    return [received]


def barrier(make, rank, world):
    tensor = make(rank)
    dist.barrier()
    return [tensor]


def send_and_receive(make, rank, world):
    tensor = make(rank)
    if rank == 0:
        dist.send(tensor, 1)
        return []
    received = make(9)
    dist.recv(received, 0)
    return [received]


def receive_from_anyone(make, rank, world):
    if rank == 0:
        dist.send(make(rank), 1)
        return []
    received = make(9)
    return [received, torch.tensor(dist.recv(received))]


def exchange(make, rank, world):
    received = make(9)
    other = 1 - rank
    batch = [dist.P2POp(dist.isend, make(rank), other), dist.P2POp(dist.irecv, received, other)]
    for work in dist.batch_isend_irecv(batch):
        work.wait()
    return [received]


def functional(make, rank, world):
    return [
        functional_collectives.all_gather_tensor(make(rank), 0, dist.group.WORLD).wait(),
        functional_collectives.reduce_scatter_tensor(make(rank, 8), "sum", 0, dist.group.WORLD).wait(),
        functional_collectives.all_reduce(make(rank), "sum", dist.group.WORLD).wait(),
        *functional_collectives.all_gather_into_tensor_coalesced(
            [make(rank), make(rank, 8)], dist.group.WORLD
        ),
    ]


COLLECTIVES = [
    *(all_reduce, all_reduce_later, broadcast, reduce, all_gather, all_gather_into_tensor, reduce_scatter),
    *(reduce_scatter_tensor, gather, scatter, all_to_all_single, barrier, functional),
    *(send_and_receive, receive_from_anyone, exchange),
]


def every_collective(kind):
    def on_host(rank, length=4, offset=0):
        return torch.arange(float(length)) + 100 * rank + offset

    with job() as (rank, world):
        make = arrived if kind == "cuda" else on_host
        results = {}
        for collective in COLLECTIVES:
            results[collective.__name__] = [(t * 1).tolist() for t in collective(make, rank, world)]
        return results | {"reports": reports()}


def test_collectives_give_what_they_give_on_the_cpu(ranks, on_the_cpu):
    there = ranks(2, every_collective, "cuda", **LATE)
    assert there == on_the_cpu(every_collective)


def fit_sharded(kind):
    """FSDP2 over nccl asks for averages."""
    with job("nccl") as (rank, _):
        torch.manual_seed(0)
        model = GPT(dropout=0.0).to("cuda")
        for block in model.blocks:
            fully_shard(block)
        fully_shard(model)

        def loss_of(model, step):
            tokens = random(4, 17, seed=2 * step + rank, below=VOCABULARY).cuda()
            return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())

        done = train(model, torch.optim.AdamW(model.parameters(), lr=3e-3), loss_of)
        return done | {"reports": reports()}


def test_fully_sharded_training_has_the_bits_of_data_parallel_training_on_the_cpu(ranks, on_the_cpu):
    there = ranks(2, fit_sharded, "cuda", SPILLWAY_EMULATE_SCHEDULE="late", SPILLWAY_EMULATE_CHECK="1")
    assert there == on_the_cpu(fit_gpt)


def ask_for_nccl(backend):
    with job(backend) as (rank, _):
        tensor = torch.full((4,), rank + 1.0, device="cuda")
        dist.all_reduce(tensor, op=dist.ReduceOp.AVG)
        group = dist.new_group([0, 1])
        dist.broadcast(tensor, 1, group=group)
        refused = ""
        try:
            dist.all_reduce(torch.ones(1))
        except RuntimeError as error:
            refused = str(error)
        return [tensor.tolist(), dist.get_backend(), dist.get_backend(group), refused]


def test_a_group_that_asks_for_nccl_works_and_keeps_its_name(ranks):
    for values, name, name_of_group, refused in ranks(2, ask_for_nccl, "nccl"):
        assert values == [1.5] * 4
        assert (name, name_of_group) == ("nccl", "nccl")
        assert "No backend type associated with device type cpu" in refused


def test_a_group_that_asks_for_a_backend_per_device_has_both(ranks):
    for values, _, _, refused in ranks(2, ask_for_nccl, "cpu:gloo,cuda:nccl"):
        assert (values, refused) == ([1.5] * 4, "")


SCRIPT = """
import os, torch, torch.distributed as dist
dist.init_process_group("nccl", init_method="file://" + os.environ["STORE"], rank=0, world_size=1)
dist.new_group([0])
dist.destroy_process_group()
"""


def test_the_substitution_of_nccl_is_announced_once(python, tmp_path):
    done = python("-c", SCRIPT, STORE=str(tmp_path / "store"))
    said = [line for line in done.stderr.splitlines() if line.startswith("spillway-emulator: ")]
    assert done.returncode == 0
    assert len(said) == 1
    assert "nccl run over gloo" in said[0]
