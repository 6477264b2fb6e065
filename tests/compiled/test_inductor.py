# SPDX-License-Identifier: Apache-2.0
"""The code that inductor writes, on the CPU, whose tensors pass for those of a GPU here."""

import re

import pytest
import torch
from spillway import _saved_in_graphs
from torch import nn
from torch._functorch import config
from torch._inductor.utils import fresh_cache, run_and_get_code

SAVED = re.compile(r"spillway\.save\.default\((?:reinterpret_tensor\()?(\w+)")
LOADED = re.compile(r"(\w+) = torch\.ops\.spillway\.load\.default")


@pytest.fixture(scope="module", autouse=True)
def on_the_cpu():
    """No graph comes from a cache."""
    _saved_in_graphs.start()
    with pytest.MonkeyPatch.context() as patched, torch._inductor.config.patch(force_disable_caches=True):
        patched.setattr(_saved_in_graphs, "_is_on_gpu", lambda value: True)
        patched.setattr(_saved_in_graphs, "_MIN_BYTES", 4096)
        yield
    torch.compiler.reset()


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(64)
        self.attention = nn.MultiheadAttention(64, 4, batch_first=True)
        self.up = nn.Linear(64, 256)
        self.down = nn.Linear(256, 64)

    def forward(self, x):
        h = self.norm(x)
        x = x + self.attention(h, h, h, need_weights=False)[0]
        return x + self.down(nn.functional.gelu(self.up(x)))


def results(net, run, x):
    loss = run(x).square().mean()
    return loss.detach(), *torch.autograd.grad(loss, list(net.parameters()))


def same(left, right):
    return all(torch.equal(a, b) for a, b in zip(left, right, strict=True))


@pytest.fixture(scope="module")
def codes():
    """The bodies of the forward and the backward graph of a model that has the bits of the plain run."""
    torch.manual_seed(0)
    net, x = Block(), torch.randn(4, 32, 64)

    def run():
        torch.compiler.reset()
        values, found = run_and_get_code(lambda: results(net, torch.compile(net), x))
        return values, [code[code.index("def call(") :] for code in found]

    with config.patch(enable_activation_offloading=False):
        plain, without = run()
    ours, found = run()
    assert same(plain, ours)
    assert not any("spillway" in code for code in without)
    return found


def test_each_tensor_that_is_saved_is_loaded(codes):
    forward, backward = codes
    assert len(SAVED.findall(forward)) == len(LOADED.findall(backward)) > 5
    assert not LOADED.search(forward)
    assert not SAVED.search(backward)


def test_what_is_saved_is_freed_and_not_reused(codes):
    forward, _ = codes
    assert re.search(r"del \w+\s+# reuse", forward)  # as other buffers are
    for name in SAVED.findall(forward):
        assert re.search(rf"del {name}$", forward, re.MULTILINE)


def test_what_is_loaded_is_freed_and_not_reused(codes):
    _, backward = codes
    assert re.search(r"del \w+\s+# reuse", backward)
    for result in LOADED.findall(backward):
        (name,) = re.findall(rf"(\w+) = {result}$", backward, re.MULTILINE)
        assert re.search(rf"del {name}$", backward, re.MULTILINE)


class Overwrites(torch.autograd.Function):
    """Its backward pass changes a copy of what it has saved, which inductor changes in place where it may."""

    @staticmethod
    def forward(ctx, x, weight):
        y = x @ weight
        ctx.save_for_backward(y)
        return y * 2

    @staticmethod
    def backward(ctx, grad):
        (y,) = ctx.saved_tensors
        rows = torch.arange(0, y.shape[0], 2)
        return y.index_put((rows,), grad[rows] + 1, accumulate=True), None


def bits_are_equal(function, parameters, x):
    """Of results and gradients, with and without the operators."""

    def run():
        torch.compiler.reset()
        loss = torch.compile(function)(x)
        return loss.detach(), *torch.autograd.grad(loss, parameters)

    with config.patch(enable_activation_offloading=False):
        plain = run()
    return same(plain, run())


def test_what_is_saved_inside_another_buffer_is_not_overwritten():
    """Inductor has products written to the result of their concatenation. That was the last use of it."""
    torch.manual_seed(0)
    x, weights = torch.randn(128, 64), [nn.Parameter(torch.randn(64, 64) * 0.1) for _ in range(4)]

    def function(x):
        products = []
        for weight in weights:
            x = torch.tanh(x @ weight)
            products.append(x @ weights[0])
        spread = torch.stack(products).std(0).detach()
        loss = sum((each.sigmoid() * spread).sum() for each in products)
        return loss + (torch.cat([spread @ each for each in weights]).sin() @ weights[1]).sum()

    assert bits_are_equal(function, weights, x)


def test_what_is_saved_may_have_another_layout_than_was_traced():
    """Inductor changes that of convolutions, also where the order of a sum depends on it."""
    torch.manual_seed(0)
    layers = (nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()) for _ in range(3))
    net = nn.Sequential(*layers)
    x = torch.randn(4, 16, 24, 24)
    assert bits_are_equal(lambda x: net(x).square().mean(), list(net.parameters()), x)


def test_a_second_backward_pass_reads_the_same_values():
    torch.compiler.reset()
    x, weight = torch.randn(64, 64, requires_grad=True), torch.randn(64, 64)
    run = torch.compile(lambda x: Overwrites.apply(x.sin(), weight).sum())
    with config.patch(donated_buffer=False):
        loss = run(x)
        (first,) = torch.autograd.grad(loss, x, retain_graph=True)
        (second,) = torch.autograd.grad(loss, x)
    assert torch.equal(first, second)


def test_a_cache_has_graphs_of_both_kinds(monkeypatch):
    """Under saved-tensor hooks graphs are not changed."""
    changed = []
    original = _saved_in_graphs.save_one_by_one
    monkeypatch.setattr(
        _saved_in_graphs, "save_one_by_one", lambda *graphs: changed.append(graphs) or original(*graphs)
    )

    def compiled():
        torch.compiler.reset()
        before = len(changed)
        torch.compile(lambda x: x.sin().exp().sum())(torch.randn(64, 64, requires_grad=True)).backward()
        return len(changed) - before

    hooks = torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor)
    with fresh_cache(), torch._inductor.config.patch(force_disable_caches=False):
        with hooks:
            assert compiled() == 0
        assert compiled() == 1
        assert compiled() == 0  # found


def test_lengths_become_symbols_without_further_graphs():
    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()
    torch.manual_seed(0)
    net = nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64))
    plain, ours = torch.compile(net, dynamic=True), torch.compile(net, dynamic=True)
    lengths = [torch.randn(4, length, 64) for length in (40, 56, 72)]
    with config.patch(enable_activation_offloading=False):
        expected = [results(net, plain, x) for x in lengths]
    torch.compiler.reset()
    (values, (forward, _)) = run_and_get_code(lambda: [results(net, ours, x) for x in lengths])
    assert "spillway.save" in forward
    assert all(same(*each) for each in zip(expected, values, strict=True))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 2  # one for each of both
