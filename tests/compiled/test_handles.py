# SPDX-License-Identifier: Apache-2.0
"""What stands for a saved tensor in a compiled graph, and which graphs are left alone."""

import gc
import sys
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import spillway
import torch
from functorch.compile import make_boxed_func
from spillway import _saved_in_graphs
from spillway._saved_in_inductor import PATCHES
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch._functorch import config


@pytest.fixture(autouse=True)
def fresh():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@pytest.fixture
def net():
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)) for _ in range(3))
    ).cuda()


@pytest.fixture
def x():
    return torch.randn(512, 256, device="cuda", generator=torch.Generator("cuda").manual_seed(1))


def offloaded():
    return spillway.stats()["tags"]["here"]["last"]["offloaded_bytes"]


def last_step_of(run, x):
    with spillway.CPUOffload(1, tag="here"):
        loss = run(x).square().mean()
    loss.backward()
    spillway.step()
    return offloaded()


def handles():
    gc.collect()
    return spillway.stats()["saved_tensor_handles"]


def test_they_end_without_a_backward_pass(net, x):
    run = torch.compile(net)
    with spillway.CPUOffload(1):
        loss = run(x).square().mean()
    assert handles() > 0
    del loss
    assert handles() == 0


def test_they_stand_for_as_many_bytes_as_autograd_would_save(net, x):
    whole = last_step_of(torch.compile(net), x)
    with config.patch(enable_activation_offloading=False):
        torch.compiler.reset()
        assert last_step_of(torch.compile(net), x) == whole > 0


def test_a_graph_without_a_region_keeps_what_it_operators(net, x):
    run = torch.compile(net)
    last_step_of(run, x)  # compiled in a region
    before = torch.cuda.memory_allocated()
    loss = run(x).square().mean()
    kept = torch.cuda.memory_allocated() - before
    assert kept > 3 * 2 * 512 * 1024 * 4  # both sides of each activation function
    loss.backward()
    assert handles() == 0


def counting_hooks(seen):
    def pack(tensor):
        seen.append(tensor)
        return tensor

    return torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)


def test_a_graph_that_is_compiled_under_hooks_saves_tensors(net, x):
    """They decide about tensors, as those of a checkpoint do."""
    seen = []
    with spillway.CPUOffload(1), counting_hooks(seen):
        torch.compile(net)(x).square().mean().backward()
    assert any(each.is_cuda and each.nbytes == 512 * 1024 * 4 for each in seen)


def test_hooks_may_be_entered_after_it_was_compiled(net, x):
    """Nothing is offloaded then, as in eager mode, and the hooks see numbers."""
    run = torch.compile(net)
    last_step_of(run, x)
    net.zero_grad()
    run(x).square().mean().backward()
    expected = [each.grad.clone() for each in net.parameters()]
    net.zero_grad()
    seen = []
    with spillway.CPUOffload(1, tag="there"), counting_hooks(seen):
        run(x).square().mean().backward()
    assert all(
        torch.equal(each.grad, wanted) for each, wanted in zip(net.parameters(), expected, strict=True)
    )
    assert any(not each.is_cuda and each.numel() == 1 for each in seen)


def test_hooks_that_copy_are_refused_after_it_was_compiled(net, x):
    run = torch.compile(net)
    last_step_of(run, x)
    with torch.autograd.graph.save_on_cpu(pin_memory=True):
        loss = run(x).square().mean()
    with pytest.raises(RuntimeError, match="Enter the hook before the first call of the compiled function"):
        loss.backward()


def graphs_of(run, x, **settings):
    """The forward and backward graphs that it compiles."""
    found = []

    def compiler(graph, _inputs):
        found.append(graph)
        return make_boxed_func(graph.forward)

    with config.patch(**settings):
        torch.compile(run, backend=aot_autograd(fw_compiler=compiler, bw_compiler=compiler))(
            x
        ).sum().backward()
    return found


def operators(graphs):
    return [node for graph in graphs for node in graph.graph.nodes if "spillway" in str(node.target)]


def test_they_are_made_after_the_last_use_and_read_before_the_first(net, x):
    """Also of views: attention's inputs are parts of one product."""

    def run(x):
        q, k, v = (part.view(8, 64, 4, 64).transpose(1, 2) for part in net(x).repeat(1, 3).chunk(3, -1))
        return torch.nn.functional.scaled_dot_product_attention(q, k, v).sin()

    spillway.CPUOffload(1)
    forward, backward = graphs_of(run, x)
    storage = {node: node.meta["val"].untyped_storage()._cdata for node in tensors(forward)}
    nodes = list(forward.graph.nodes)
    made = operators([forward])
    assert len(made) > 8
    for node in made:
        later = nodes[nodes.index(node) + 1 : -1]
        read = {storage.get(each) for other in later if other not in made for each in other.all_input_nodes}
        assert storage[node.args[0]] not in read
    read = operators([backward])
    assert len(read) == len(made)
    for node in read:
        user = node.next
        while user in read or _saved_in_graphs._is_view(user):
            user = user.next
        used = {user, *user.all_input_nodes}
        assert any(each is node or node in each.all_input_nodes for each in used), node


def tensors(graph):
    return [node for node in graph.graph.nodes if isinstance(node.meta.get("val"), torch.Tensor)]


def test_any_backend_over_aot_autograd_gets_the_operators(net, x):
    spillway.CPUOffload(1)
    assert operators(graphs_of(net, x))


def test_pytorchs_own_offloading_is_left_alone(net, x):
    spillway.CPUOffload(1)
    assert not operators(graphs_of(net, x, enable_activation_offloading=True))


def test_graphs_that_are_captured_are_left_alone(net, x):
    spillway.CPUOffload(1)
    with torch._inductor.config.patch({"triton.cudagraphs": True}):
        assert not operators(graphs_of(net, x))


@pytest.mark.parametrize(
    "module", ["torch._functorch._activation_offloading.activation_offloading", *PATCHES]
)
def test_graphs_are_left_alone_where_pytorch_has_changed(net, x, module, monkeypatch):
    """One of its internal modules has other functions than are expected: nothing is raised."""
    spillway.CPUOffload(1)
    monkeypatch.setattr(_saved_in_graphs, "_unknown", [])
    with monkeypatch.context() as changed:
        changed.setitem(sys.modules, module, SimpleNamespace(PythonWrapperCodegen=object()))
        _saved_in_graphs._patched(module, PATCHES.get(module, _saved_in_graphs._patch))
    assert not operators(graphs_of(net, x))


class Stores(torch.autograd.Function):
    """An input of the graph, and a tensor of its own, on its context."""

    @staticmethod
    def forward(ctx, x):
        ctx.x, ctx.y = x, x.exp().cumsum(0)
        return ctx.y.sin()

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.x * ctx.y


def test_what_no_hook_sees_is_offloaded_or_counted(x):
    x.requires_grad_()
    expected = torch.autograd.grad(Stores.apply(x.clone()).sum(), x)[0]
    run = torch.compile(Stores.apply)
    with spillway.CPUOffload(1, tag="stored"):
        loss = run(x.clone()).sum()
    (found,) = torch.autograd.grad(loss, x)
    del loss
    spillway.step()
    assert torch.equal(found, expected)
    last = spillway.stats()["tags"]["stored"]["last"]
    assert last["skipped"]["referenced_elsewhere"]["bytes"] == x.nbytes
    assert last["offloaded_bytes"] == x.nbytes


@pytest.mark.parametrize(
    "options",
    [
        {"backend": "cudagraphs"},
        {"mode": "reduce-overhead"},
        {"mode": "max-autotune"},
        {"options": {"triton.cudagraphs": True}},
    ],
    ids=str,
)
def test_requests_for_cuda_graphs_are_left_alone(net, x, monkeypatch, options):
    """By programs for a GPU; the emulated one captures nothing."""
    spillway.CPUOffload(1)
    changed = []
    monkeypatch.setattr(_saved_in_graphs, "save_one_by_one", lambda *graphs: changed.append(graphs))
    torch.compile(net, **options)(x).sum().backward()
    assert not changed
    torch.compiler.reset()
    torch.compile(net, mode="max-autotune-no-cudagraphs")(x).sum().backward()
    assert changed


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("changed", ["input", "result"])
def test_a_change_in_place_of_what_the_program_has_too_is_an_error(net, x, changed, inside):
    """As without Spillway: autograd saves inputs and results, and knows their versions."""

    @torch.compile
    def run(x):
        y = net(x).tanh()
        return y, y.exp()

    x, region = x.clone(), spillway.CPUOffload(1)
    with region if inside else nullcontext():
        y, loss = run(x)
    {"input": x, "result": y}[changed].mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.sum().backward()


def test_nested_tensors_are_saved_by_autograd(net):
    """The backward graph cannot compute the sum of their lengths."""
    run, parameters = torch.compile(net), list(net.parameters())
    for more in (0, 16, 48):
        parts = [torch.randn(64 + 8 * at + more, 256, device="cuda") for at in range(4)]
        nested = torch.nested.nested_tensor(parts, layout=torch.jagged)
        expected = torch.autograd.grad(net(nested).values().square().mean(), parameters)
        with spillway.CPUOffload(1):
            loss = run(nested).values().square().mean()
        assert all(map(torch.equal, torch.autograd.grad(loss, parameters), expected))
