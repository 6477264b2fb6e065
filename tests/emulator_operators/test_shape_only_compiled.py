# SPDX-License-Identifier: Apache-2.0
"""torch.compile in dry runs: fused kernels take the memory and the time of what crosses their borders."""

import gc

import pytest
import torch
import torch.nn.functional as F
from torch import nn

DRY = dict(shape_only="1", memory="141GiB")
SIZE = 256 << 20  # bytes of a tensor


def tensor(requires_grad=False):
    return torch.empty(SIZE // 4096, 2048, dtype=torch.bfloat16, device="cuda", requires_grad=requires_grad)


def measured(call):
    """The second call: bytes at its peak over those before it, and its time."""
    call()
    gc.collect()  # what compiling has left behind
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    result = call()
    end.record()
    end.synchronize()
    del result
    return {"bytes": torch.cuda.max_memory_allocated() - before, "ms": start.elapsed_time(end)}


def chain():
    @torch.compile
    def norm(x, y):
        exact = x.float() + y
        return (exact * torch.rsqrt(exact.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype) * y

    x, y = tensor(), tensor()
    return measured(lambda: norm(x, y))


def test_a_chain_takes_its_result_and_the_time_of_its_borders(elsewhere):
    found = elsewhere(chain, rates="memory=1e12", **DRY)
    assert found["bytes"] == SIZE
    assert found["ms"] == pytest.approx(1e3 * 3 * SIZE / 1e12, rel=0.02)


def swiglu(compiled):
    call = torch.compile(lambda gate, up: F.silu(gate) * up) if compiled else lambda g, u: F.silu(g) * u
    gate, up = tensor(True), tensor(True)
    gradient = tensor()
    return measured(lambda: torch.autograd.grad(call(gate, up), (gate, up), gradient))


def test_a_backward_pass_allocates_gradients_and_nothing_in_float32(elsewhere):
    fused, eager = (elsewhere(swiglu, compiled, **DRY)["bytes"] for compiled in (True, False))
    assert fused == 3 * SIZE  # the result and two gradients
    assert eager == 4 * SIZE  # and silu's result, then its gradient


def views():
    @torch.compile
    def parts(x):
        return x.t()[3:], x.view(-1, 64) + 1

    x = tensor()
    view, new = parts(x)
    inside = view.data_ptr() == x.data_ptr() + 3 * x.element_size()
    return [inside, list(view.stride()), list(new.shape), new.data_ptr() == x.data_ptr()]


def test_a_view_stays_one(elsewhere):
    assert elsewhere(views, **DRY) == [True, [1, 2048], [SIZE // 128, 64], False]


def values():
    small = torch.compile(lambda x: (x * 2).sum() + x[1])
    large = torch.compile(lambda x: (x.float().sum(), x.isnan().any()))
    total, wrong = large(tensor())
    return [small(torch.arange(4, device="cuda")).item(), total.item(), wrong.item()]


def test_what_the_program_reads_is_what_it_reads_uncompiled(elsewhere):
    assert elsewhere(values, **DRY) == [13, 1.0, False]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.inner, self.outer = nn.LayerNorm(256), nn.Linear(256, 1024), nn.Linear(1024, 256)

    def forward(self, x):
        return x + F.dropout(self.outer(F.gelu(self.inner(self.norm(x)))), 0.1)


def trained(dynamic):
    model = torch.compile(nn.Sequential(nn.Embedding(512, 256), Block(), Block(), nn.Linear(256, 512)).cuda())
    optimizer = torch.optim.AdamW(model.parameters())
    saved = []
    for length in (128, 256, 512):
        tokens = torch.randint(512, (4, length), device="cuda")
        if dynamic:
            torch._dynamo.mark_dynamic(tokens, 1)
        before = torch.cuda.memory_allocated()
        loss = F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
        saved.append(torch.cuda.memory_allocated() - before)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return {"saved": saved, "loss": loss.item(), "shape": list(model(tokens).shape)}


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_model_trains_with_lengths_that_are_known_and_ones_that_are_not(elsewhere, dynamic):
    found = elsewhere(trained, dynamic, **DRY)
    assert found["shape"] == [4, 512, 512]
    assert found["loss"] == 1.0
    assert found["saved"][-1] == pytest.approx(2 * found["saved"][-2], rel=1e-4)
