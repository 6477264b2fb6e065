# SPDX-License-Identifier: Apache-2.0
"""What NCCL has and gloo lacks, in groups that ask for nccl: the right result, or an error that names it."""

import os

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.distributed.distributed_c10d import _coalescing_manager
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

RANKS = 2
FLOATS = (torch.float32, torch.float64, torch.half, torch.bfloat16)
INTEGERS = (torch.int8, torch.uint8, torch.int32, torch.int64)
EIGHT_BITS = (torch.float8_e4m3fn, torch.float8_e5m2)


def start():
    rank = int(os.environ["RANK"])
    dist.init_process_group("nccl", init_method=os.environ["RENDEZVOUS"], rank=rank, world_size=RANKS)
    torch.cuda.set_device(rank)
    return rank


def share(rank, kind=torch.float32, length=8):
    """Numbers that add up without rounding in every type."""
    return (torch.arange(length) % 4 + 2 * rank + 1).to(kind).cuda()


def after(tensor, work):
    if work is not None:
        work.wait()
    return tensor


def all_reduce(given, op, later):
    return after(given, dist.all_reduce(given, op, async_op=later))


def reduce(given, op, later):
    before = given.clone()
    after(given, dist.reduce(given, 1, op, async_op=later))
    return given if dist.get_rank() == 1 else before


def reduce_scatter(given, op, later):
    out = torch.empty_like(given[:4])
    return after(out, dist.reduce_scatter(out, [given[:4], given[4:]], op, async_op=later))


def reduce_scatter_tensor(given, op, later):
    out = torch.empty_like(given[:4])
    return after(out, dist.reduce_scatter_tensor(out, given, op, async_op=later))


def all_reduce_coalesced(given, op, later):
    parts = [given[:4].clone(), given[4:].clone()]
    with _coalescing_manager(device=given.device if later else None, async_ops=later) as manager:
        for part in parts:
            dist.all_reduce(part, op)
    if later:
        manager.wait()
    return torch.cat(parts)


def reduce_scatter_coalesced(given, op, later):
    outs = [torch.empty_like(given[:2]) for _ in range(2)]
    with _coalescing_manager(device=given.device if later else None, async_ops=later) as manager:
        for out, part in zip(outs, (given[:4], given[4:]), strict=True):
            dist.reduce_scatter_tensor(out, part, op)
    if later:
        manager.wait()
    return torch.cat(outs)


REDUCTIONS = (
    all_reduce,
    reduce,
    reduce_scatter,
    reduce_scatter_tensor,
    all_reduce_coalesced,
    reduce_scatter_coalesced,
)


def part_of(function, whole, rank, given):
    """Of a reduction of everything, what the function leaves on a rank."""
    if function is reduce:
        return whole if rank == 1 else given
    if function in (reduce_scatter, reduce_scatter_tensor):
        return whole.chunk(2)[rank]
    if function is reduce_scatter_coalesced:
        return torch.cat([whole[:4].chunk(2)[rank], whole[4:].chunk(2)[rank]])
    return whole


def reduced(kind, op):
    shares = [share(rank, kind) for rank in range(RANKS)]
    if op == "average":
        total = shares[0] + shares[1]
        return total / 2 if kind.is_floating_point else total.div(2, rounding_mode="trunc")
    if op == "product":
        return shares[0] * shares[1]
    scaled = [each * torch.tensor(0.25).to(each) for each in shares]
    return scaled[0] + scaled[1] if op == "scaled" else shares[0] + shares[1]


def reduce_in_every_way():
    rank = start()
    operations = {
        "sum": dist.ReduceOp.SUM,
        "product": dist.ReduceOp.PRODUCT,
        "average": dist.ReduceOp.AVG,
        "scaled": dist._make_nccl_premul_sum(0.25),
        "scaled by a tensor": dist._make_nccl_premul_sum(torch.full((1,), 0.25, device="cuda")),
    }
    wrong = []
    for name, op in operations.items():
        for kind in FLOATS + (() if name.startswith("scaled") else INTEGERS):
            for function in REDUCTIONS:
                for later in (False, True):
                    given = share(rank, kind)
                    found = function(given.clone(), op, later)
                    whole = reduced(kind, "scaled" if name.startswith("scaled") else name)
                    if not torch.equal(found, part_of(function, whole, rank, given)):
                        wrong.append(f"{function.__name__} {name} {kind} later={later}: {found.tolist()}")
    dist.destroy_process_group()
    return wrong


def test_every_reduction_of_every_type(ranks):
    assert ranks(RANKS, reduce_in_every_way) == [[], []]


def move_in_every_way(rank, kind):
    mine, theirs = share(rank, kind), share(1 - rank, kind)
    ordered = [share(each, kind) for each in range(RANKS)]
    empty = torch.empty_like(mine)
    wrong = []

    def check(name, found, expected):
        same = all(
            torch.equal(a.view(torch.uint8), b.view(torch.uint8))
            for a, b in zip(found, expected, strict=True)
        )
        if not same:
            wrong.append(name)

    for later in (False, True):
        found = mine.clone()
        check("broadcast", [after(found, dist.broadcast(found, 1, async_op=later))], ordered[1:])
        into = [empty.clone() for _ in range(RANKS)]
        check("all_gather", after(into, dist.all_gather(into, mine, async_op=later)), ordered)
        into = torch.cat([empty, empty])
        dist_work = dist.all_gather_into_tensor(into, mine, async_op=later)
        check("all_gather_into_tensor", [after(into, dist_work)], [torch.cat(ordered)])
        into = list(empty.clone().chunk(2))
        expected = [each.chunk(2)[rank] for each in ordered]
        check("all_to_all", after(into, dist.all_to_all(into, list(mine.chunk(2)), async_op=later)), expected)
        into = empty.clone()
        work = dist.all_to_all_single(into, mine, async_op=later)
        check("all_to_all_single", [after(into, work)], [torch.cat(expected)])
        into = [empty.clone() for _ in range(RANKS)] if rank == 1 else None
        work = dist.gather(mine, into, 1, async_op=later)
        check("gather", after(into, work) or [], ordered if rank == 1 else [])
        into = empty.clone()
        work = dist.scatter(into, ordered if rank == 1 else None, 1, async_op=later)
        check("scatter", [after(into, work)], [mine])
    outs = [torch.cat([empty, empty]) for _ in range(2)]
    with _coalescing_manager(async_ops=True) as manager:
        for out in outs:
            dist.all_gather_into_tensor(out, mine)
    manager.wait()
    check("all_gather_into_tensor, coalesced", outs, [torch.cat(ordered)] * 2)
    # Sizes that differ between the ranks.
    sized = [share(each, kind, 3 + each) for each in range(RANKS)]
    into = [torch.empty_like(each) for each in sized]
    dist.all_gather(into, sized[rank])
    check("all_gather of several sizes", into, sized)
    if rank == 0:
        dist.send(mine, 1)
        dist.recv(empty, 1)
    else:
        dist.recv(empty, 0)
        dist.send(mine, 0)
    check("send and recv", [empty], [theirs])
    batch = [dist.P2POp(dist.isend, mine, 1 - rank), dist.P2POp(dist.irecv, empty.zero_(), 1 - rank)]
    for work in dist.batch_isend_irecv(batch):
        work.wait()
    check("batch_isend_irecv", [empty], [theirs])
    gathered = functional.all_gather_tensor(mine, 0, dist.group.WORLD).wait()
    check("functional all_gather_tensor", [gathered], [torch.cat(ordered)])
    exchanged = functional.all_to_all_single(mine, None, None, dist.group.WORLD).wait()
    check("functional all_to_all_single", [exchanged], [torch.cat(expected)])
    sent = functional.broadcast(mine, 1, dist.group.WORLD).wait()
    check("functional broadcast", [sent], ordered[1:])
    dist.barrier()
    dist.barrier(device_ids=[rank])
    return wrong


def move_every_type():
    rank = start()
    kinds = (*FLOATS, *INTEGERS, *EIGHT_BITS, torch.bool)
    wrong = {str(kind): move_in_every_way(rank, kind) for kind in kinds}
    dist.destroy_process_group()
    return {kind: names for kind, names in wrong.items() if names}


def test_every_collective_moves_every_type(ranks):
    assert ranks(RANKS, move_every_type) == [{}, {}]


def reduce_functionally():
    rank = start()
    wrong = []
    for kind in FLOATS + INTEGERS:
        whole, given, group = reduced(kind, "average"), share(rank, kind), dist.group.WORLD
        scattered = functional.reduce_scatter_tensor(given, "avg", 0, group).wait()
        found = {
            "all_reduce": (functional.all_reduce(given, "avg", group).wait(), whole),
            "reduce_scatter": (scattered, whole.chunk(2)[rank]),
            "all_reduce_coalesced": (functional.all_reduce_coalesced([given], "avg", group)[0].wait(), whole),
            "reduce_scatter_coalesced": (
                functional.reduce_scatter_tensor_coalesced([given], "avg", [0], group)[0].wait(),
                whole.chunk(2)[rank],
            ),
        }
        wrong += [
            f"{name} {kind}" for name, (is_now, wanted) in found.items() if not torch.equal(is_now, wanted)
        ]
    dist.destroy_process_group()
    return wrong


def test_functional_averages(ranks):
    assert ranks(RANKS, reduce_functionally) == [[], []]


def scatter_sizes_that_differ():
    rank = start()
    shares = [[share(each, torch.float32, 3), share(each, torch.float32, 5)] for each in range(RANKS)]
    found = {}
    for name, op in (("sum", dist.ReduceOp.SUM), ("average", dist.ReduceOp.AVG)):
        out = torch.empty(3 + 2 * rank, device="cuda")
        dist.reduce_scatter(out, shares[rank], op)
        found[name] = out.tolist()
    whole = shares[0][rank] + shares[1][rank]
    dist.destroy_process_group()
    return found == {"sum": whole.tolist(), "average": (whole / 2).tolist()}


def test_reduce_scatter_of_several_sizes(ranks):
    assert ranks(RANKS, scatter_sizes_that_differ) == [True, True]


def refused():
    start()
    said = []
    for kind, op in ((torch.float8_e4m3fn, dist.ReduceOp.SUM), (torch.int16, dist.ReduceOp.SUM)):
        try:
            dist.all_reduce(torch.ones(4, device="cuda").to(kind), op)
        except (NotImplementedError, TypeError) as error:
            said.append(f"{type(error).__name__}: {error}")
    try:
        dist.all_reduce(torch.ones(4, device="cuda", dtype=torch.int32), dist._make_nccl_premul_sum(0.5))
    except TypeError as error:
        said.append(str(error))
    dist.destroy_process_group()
    return said


def test_what_it_cannot_reduce_is_named(ranks):
    for eight_bits, short, scaled in ranks(RANKS, refused):
        assert "NotImplementedError" in eight_bits
        assert "Float8_e4m3fn" in eight_bits
        assert "NCCL takes no tensors of type Short" in short
        assert "PREMUL_SUM of Int" in scaled


def sharded_with_a_factor():
    """As torchtitan scales gradients by the number of tokens."""
    rank = start()
    results = []
    for kind in (torch.float32, torch.bfloat16):
        torch.manual_seed(0)
        model = torch.nn.Linear(8, 4, bias=False).cuda()
        with torch.no_grad():
            model.weight.copy_(torch.arange(32.0).view(4, 8) % 4)
        plain = torch.nn.Linear(8, 4, bias=False).cuda()
        plain.load_state_dict(model.state_dict())
        fully_shard(model)
        model.set_gradient_divide_factor(4.0)
        model.to(kind)
        model(share(rank, kind, 8)).sum().backward()
        gradient = model.weight.grad
        found = gradient.full_tensor() if isinstance(gradient, DTensor) else gradient
        total = sum(share(each, torch.float32, 8) for each in range(RANKS)).expand(4, 8) / 4
        results.append(torch.equal(found.float(), total))
    dist.destroy_process_group()
    return results


def test_sharded_training_with_a_divide_factor(ranks):
    assert ranks(RANKS, sharded_with_a_factor) == [[True, True], [True, True]]
