# SPDX-License-Identifier: Apache-2.0
"""CUDA graphs over Spillway's heap: their memory is theirs until they are gone."""

import pytest
from conftest import EMULATED, run

USE = "import torch, spillway\nspillway.use_allocator()\n"
NATIVE = "import torch\n"
MODEL = """
from torch import nn
def make(seed=0):
    torch.manual_seed(seed)
    layers = [nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 8)]
    return nn.Sequential(*layers).cuda()
def batch(step):
    torch.manual_seed(100 + step)
    return torch.randn(32, 64).cuda()
def bits(tensors):
    return [t.detach().cpu().view(torch.int32).sum(dtype=torch.int64).item() for t in tensors]
def held():
    torch.cuda.empty_cache()
    return torch.cuda.memory_reserved()
"""

SESSION = (
    MODEL
    + """
facts = {}

# A whole training step is captured and replayed.
model = make()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
static = batch(0)
def step():
    optimizer.zero_grad(set_to_none=True)
    loss = model(static).square().mean()
    loss.backward()
    optimizer.step()
    return loss
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    for _ in range(2):
        step()
torch.cuda.current_stream().wait_stream(side)
optimizer.zero_grad(set_to_none=True)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    loss = step()
losses = []
for index in range(1, 4):
    static.copy_(batch(index))
    graph.replay()
    # Others work meanwhile and must not get the graph's memory.
    torch.full((1 << 20,), -1.0, device="cuda")
    losses.append(loss.item())
facts["losses"] = losses
facts["parameters"] = bits(model.parameters())

# What is free inside the graph's pool stays the graph's.
reserved = held()
snapshot = torch.cuda.memory_snapshot()
pool = tuple(graph.pool())
mine = [s for s in snapshot if tuple(s["segment_pool_id"]) == pool]
facts["pool_segments"] = len(mine) > 0 and len(mine) == len(torch.cuda.memory_snapshot(pool))
ranges = [(s["address"], s["address"] + s["total_size"]) for s in mine]
outside = [torch.empty(size, device="cuda") for size in (8, 1 << 10, 1 << 16, 1 << 18, 1 << 20)]
facts["outside"] = not any(low <= t.data_ptr() < high for t in outside for low, high in ranges)
facts["inside"] = any(low <= loss.data_ptr() < high for low, high in ranges)
del outside

# Two graphs share a pool.
x = torch.ones(1 << 18, device="cuda")
first, second = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
with torch.cuda.graph(first):
    a = (x * 2 + 1).sum()
with torch.cuda.graph(second, pool=first.pool()):
    b = (x * 3 + 1).sum()
x.fill_(2)
first.replay()
second.replay()
facts["shared"] = [a.item(), b.item()]
facts["one_pool"] = first.pool() == second.pool()
del first, a
second.replay()
facts["other_lives"] = b.item()
del second, b, x

# make_graphed_callables, forward and backward
graphed = make(7)
plain = make(7)
wrapped = torch.cuda.make_graphed_callables(graphed, (batch(0).requires_grad_(),))
inputs = [batch(9).requires_grad_() for _ in range(2)]
outs = [f(i) for f, i in zip((wrapped, plain), inputs)]
for out in outs:
    out.sum().backward()
facts["graphed"] = torch.equal(*outs) and torch.equal(inputs[0].grad, inputs[1].grad)
del wrapped, graphed, plain, outs, inputs

# Freeing and using on other streams in a capture.
other = torch.cuda.Stream()
y = torch.ones(1 << 16, device="cuda")
forked = torch.cuda.CUDAGraph()
with torch.cuda.graph(forked):
    t = y * 2
    other.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(other):
        u = t + 1
    t.record_stream(other)
    del t
    z = torch.full((1 << 16,), 9.0, device="cuda")
    torch.cuda.current_stream().wait_stream(other)
    u.record_stream(torch.cuda.current_stream())
    total = u + z
y.fill_(3)
forked.replay()
facts["forked"] = total.unique().tolist()
del forked, u, z, total, y

# The pool goes with the last graph.
graph.reset()
del loss, model, optimizer, static, graph
import gc
gc.collect()
torch._C._cuda_clearCublasWorkspaces()  # one was made in a capture
facts["left"] = [s for s in torch.cuda.memory_snapshot() if tuple(s["segment_pool_id"]) != (0, 0)]
facts["held"] = [reserved, held()]
report(facts)
"""
)


@pytest.fixture(scope="module")
def seen():
    settings = {"SPILLWAY_EMULATE_CHECK": "1"} if EMULATED else {}
    return run(USE + SESSION, **settings)


@pytest.fixture(scope="module")
def native():
    return run(NATIVE + SESSION)


def test_a_replayed_training_step_has_the_bits_of_the_native_allocators(seen, native):
    assert seen["losses"] == native["losses"] and seen["parameters"] == native["parameters"]


def test_a_graphs_memory_is_a_pool_that_others_do_not_get(seen):
    assert seen["pool_segments"] and seen["outside"] and seen["inside"]


def test_two_graphs_share_a_pool_that_outlives_the_first(seen):
    assert seen["shared"] == [5.0 * (1 << 18), 7.0 * (1 << 18)] and seen["one_pool"]
    assert seen["other_lives"] == 7.0 * (1 << 18)


def test_graphed_callables_have_the_bits_of_the_plain_module(seen):
    assert seen["graphed"]


def test_memory_freed_and_used_by_two_streams_in_a_capture_is_not_mixed_up(seen):
    assert seen["forked"] == [16.0]


def test_a_pool_goes_with_its_last_graph(seen):
    assert seen["left"] == []
    assert seen["held"][1] < seen["held"][0]
