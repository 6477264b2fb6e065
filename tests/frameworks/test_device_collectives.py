# SPDX-License-Identifier: Apache-2.0
"""One process, several devices: nn.DataParallel, torch.cuda.comm and torch.cuda.nccl give what NCCL gives."""

import pytest
import torch
from torch import nn
from torch.cuda import comm, nccl

TWO = dict(SPILLWAY_EMULATE_DEVICES="2", SPILLWAY_EMULATE_CHECK="1")


class Mixed(nn.Module):
    """Parameters of two types, a buffer, and a norm with statistics."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(16, 32), nn.BatchNorm1d(32), nn.Linear(32, 4).double()
        self.register_buffer("scale", torch.arange(32.0))

    def forward(self, x):
        return self.last((self.norm(self.first(x)) * self.scale).double())


def replicated(model, batches, device):
    """A step of the model on each batch, and the sum of the gradients: without replicas."""
    outs = [model(batch.to(device)) for batch in batches]
    torch.cat(outs).square().sum().backward()
    return torch.cat(outs), [parameter.grad for parameter in model.parameters()]


def train():
    torch.manual_seed(0)
    model = Mixed()
    model.norm.track_running_stats = False
    plain = Mixed()
    plain.load_state_dict(model.state_dict())
    plain.norm.track_running_stats = False
    batch = torch.randn(8, 16)
    parallel = nn.DataParallel(model.cuda(), device_ids=[0, 1])
    out = parallel(batch.cuda())
    out.square().sum().backward()
    expected, gradients = replicated(plain, batch.chunk(2), "cpu")
    pairs = zip([parameter.grad for parameter in model.parameters()], gradients, strict=True)
    return [torch.allclose(out.cpu(), expected), *(torch.allclose(a.cpu(), b) for a, b in pairs)]


def test_data_parallel_trains_as_one_device_does(elsewhere):
    assert all(elsewhere(train, **TWO))


def communicate():
    tensors = [torch.arange(n, device="cuda").to(kind) for n, kind in ((5, torch.half), (7, torch.float32))]
    tensors += [torch.full((3, 2), 4.0, device="cuda"), torch.eye(3, device="cuda").to_sparse()]
    copies = comm.broadcast_coalesced(tensors, [0, 1], buffer_size=64)
    dense = [[each.to_dense().tolist() for each in found] for found in copies]
    placed = [[str(each.device) for each in found] for found in copies]
    own, other = comm.broadcast(tensors[1], [0, 1])
    given = comm.broadcast(tensors[1], out=[torch.empty(7, device="cuda:1"), torch.empty(7, device="cuda:0")])
    parts = comm.scatter(torch.arange(10.0, device="cuda"), [0, 1], [4, 6])
    sums = comm.reduce_add_coalesced([[each.to(f"cuda:{at}") for each in tensors[:3]] for at in range(2)], 0)
    return {
        "broadcast": dense[0] == dense[1] and placed == [["cuda:0"] * 4, ["cuda:1"] * 4],
        "its own": own is tensors[1] and other.tolist() == own.tolist(),
        "out": [each.tolist() for each in given] == [own.tolist()] * 2,
        "scatter": [each.tolist() for each in parts] == [list(range(4)), list(range(4, 10))],
        "gather": comm.gather(parts, 0, 1).tolist() == list(range(10)),
        "to the host": comm.gather(parts, 0, -1).tolist() == list(range(10)),
        "sum": [each.tolist() for each in sums] == [(2 * each).tolist() for each in tensors[:3]],
    }


def test_the_functions_of_comm(elsewhere):
    found = elsewhere(communicate, **TWO)
    assert [name for name, right in found.items() if not right] == []


def over_nccl():
    def shares():
        return [torch.tensor([1.0, 2.0, 3.0, 4.0], device=f"cuda:{at}") + at for at in range(2)]

    def lists(tensors):
        return [each.tolist() for each in tensors]

    results = {"available": nccl.is_available(shares())}
    for op, name in enumerate(("sum", "product", "max", "min")):
        reduced = shares()
        nccl.all_reduce(reduced, op=op)
        results[name] = lists(reduced)
    out = torch.empty(4, device="cuda:1")
    nccl.reduce(shares(), output=out, root=1)
    results["reduce"] = out.tolist()
    sent = shares()
    nccl.broadcast(sent, root=1)
    results["broadcast"] = lists(sent)
    gathered = [torch.empty(8, device=f"cuda:{at}") for at in range(2)]
    nccl.all_gather(shares(), gathered)
    results["gathered"] = lists(gathered)
    scattered = [torch.empty(2, device=f"cuda:{at}") for at in range(2)]
    nccl.reduce_scatter(shares(), scattered)
    results["scattered"] = lists(scattered)
    return results


def test_the_functions_of_nccl(elsewhere):
    assert elsewhere(over_nccl, **TWO) == {
        "available": True,
        "sum": [[3.0, 5.0, 7.0, 9.0]] * 2,
        "product": [[2.0, 6.0, 12.0, 20.0]] * 2,
        "max": [[2.0, 3.0, 4.0, 5.0]] * 2,
        "min": [[1.0, 2.0, 3.0, 4.0]] * 2,
        "reduce": [3.0, 5.0, 7.0, 9.0],
        "broadcast": [[2.0, 3.0, 4.0, 5.0]] * 2,
        "gathered": [[1.0, 2.0, 3.0, 4.0, 2.0, 3.0, 4.0, 5.0]] * 2,
        "scattered": [[3.0, 5.0], [7.0, 9.0]],
    }


def test_communicators_are_refused_by_name():
    with pytest.raises(NotImplementedError, match=r"torch\._C\._nccl_unique_id: "):
        nccl.unique_id()
    x = torch.ones(2, device="cuda")
    with pytest.raises(NotImplementedError, match=r"torch.cuda.nccl.all_reduce: .*current streams only"):
        nccl.all_reduce([x], streams=[torch.cuda.Stream()])
