# SPDX-License-Identifier: Apache-2.0
"""torch.compile in dry runs: fused kernels take the memory and the time of what crosses their borders."""

import gc
import time

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

DRY = dict(shape_only="1", memory="141GiB")
SIZE = 256 << 20  # bytes of a tensor


def tensor(requires_grad=False):
    return torch.empty(SIZE // 4096, 2048, dtype=torch.bfloat16, device="cuda", requires_grad=requires_grad)


def at_rest():
    """Waits until the thread of a backward pass has released its last gradients."""
    before = -1
    while before != torch.cuda.memory_allocated():
        before = torch.cuda.memory_allocated()
        time.sleep(0.1)


def measured(call):
    """The second call: bytes at its peak over those before it, and its time."""
    call()
    gc.collect()  # what compiling has left behind
    torch.cuda.synchronize()
    at_rest()
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


WIDTH, ROWS = 1024, 8192


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer, self.norm = (
            nn.Linear(WIDTH, WIDTH),
            nn.Linear(WIDTH, WIDTH),
            nn.LayerNorm(WIDTH),
        )

    def forward(self, x):
        return x + self.norm(F.gelu(self.outer(F.gelu(self.inner(x)))))


class Stack(nn.Module):
    def __init__(self, checkpointed):
        super().__init__()
        self.layers = nn.ModuleList(Residual() for _ in range(8))
        self.checkpointed = checkpointed

    def forward(self, x):
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.checkpointed else layer(x)
        return x


def whole_model(checkpointed, backend):
    model = Stack(checkpointed).cuda()
    if backend:
        model = torch.compile(model, backend=backend)

    def step():
        model(torch.empty(ROWS, WIDTH, device="cuda")).sum().backward()
        model.zero_grad()

    return measured(step)["bytes"]


def test_a_model_that_is_compiled_whole_holds_no_more_than_its_layers(elsewhere):
    """Its kernels are of one layer: unfused, the same graphs hold what fusion leaves out besides."""
    for checkpointed in (False, True):
        fused, unfused = (
            elsewhere(whole_model, checkpointed, backend, **DRY)
            for backend in ("inductor", "aot_eager_decomp_partition")
        )
        assert fused <= unfused, checkpointed
    plain = elsewhere(whole_model, False, "inductor", **DRY)
    activation = ROWS * WIDTH * 4
    assert plain - fused >= 8 * activation  # of each layer more than its input is forgotten


def offloaded():
    import spillway

    model = torch.compile(nn.Sequential(*(Residual() for _ in range(4))).cuda())
    for _ in range(3):
        with spillway.CPUOffload(0.5, tag="compiled"):
            loss = model(torch.empty(ROWS, WIDTH, device="cuda", requires_grad=True)).sum()
        loss.backward()
    return spillway.stats()["tags"]["compiled"]["last"]


def test_what_a_compiled_model_saves_can_move(elsewhere):
    last = elsewhere(offloaded, **DRY)
    assert last["offloaded_bytes"] == pytest.approx(last["offloadable_bytes"] / 2, rel=0.2)
    assert last["offloadable_bytes"] >= 4 * 3 * ROWS * WIDTH * 4


BATCH, HEADS, GROUPS, ROWS, WIDTH = 2, 16, 4, 8192, 64


def flex():
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    def made(heads):
        sizes = (BATCH, heads, ROWS, WIDTH)
        return torch.empty(sizes, dtype=torch.bfloat16, device="cuda", requires_grad=True)

    query, key, value = made(HEADS), made(GROUPS), made(GROUPS)
    slopes = torch.ones(HEADS, device="cuda", requires_grad=True)
    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, ROWS, ROWS, device="cuda")

    @torch.compile
    def attend(query, key, value):
        return flex_attention(
            query, key, value, lambda score, b, h, i, j: score + slopes[h], block_mask=mask, enable_gqa=True
        )

    forward = measured(lambda: attend(query, key, value))
    out = attend(query, key, value)
    gradient = torch.empty_like(out)
    found = [forward, measured(lambda: torch.autograd.grad(out, (query, key, value, slopes), gradient, True))]
    out.sum().backward()
    assert [query.grad.shape, key.grad.shape, slopes.grad.shape] == [query.shape, key.shape, slopes.shape]
    return found


@pytest.mark.parametrize("share", [1, 0.5])
def test_flex_attention_keeps_no_scores_and_takes_the_time_of_its_blocks(elsewhere, share):
    rates = "half=100e12,attention=0.4,attention_backward=0.25"
    forward, backward = elsewhere(flex, assume=f"nonzero={share}", rates=rates, **DRY)
    out, sums = BATCH * HEADS * ROWS * WIDTH * 2, BATCH * HEADS * ROWS * 4
    assert forward["bytes"] == out + sums
    gradients = out + 2 * out * GROUPS // HEADS + 512  # and the slopes'
    assert gradients + sums <= backward["bytes"] <= gradients + 2 * sums + out
    flops = 4 * BATCH * HEADS * ROWS**2 * WIDTH * share
    assert 1e3 * flops / 40e12 <= forward["ms"] <= 1e3 * flops / 40e12 + 0.05
    assert 1e3 * 2.5 * flops / 25e12 <= backward["ms"] <= 1e3 * 2.5 * flops / 25e12 + 0.5
