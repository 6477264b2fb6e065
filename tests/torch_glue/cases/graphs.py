# SPDX-License-Identifier: Apache-2.0
"""Graphs live, end and are used again in any order."""

import contextlib

import spillway
import torch

from cases import case
from cases.measure import Copied, an_edit_is_noticed, residency, same_bits, save


def build(seed):
    """A graph and its input; everything it saves can move."""
    torch.manual_seed(seed)
    x = torch.randn(64, 256, device="cuda", requires_grad=True)
    y = x * 2
    for _ in range(4):
        y = (y.sigmoid() * 1.5).tanh()
    return y.square().sum(), x


def plain_gradient(seed):
    loss, x = build(seed)
    loss.backward()
    return x.grad


def offloaded(seed):
    with spillway.CPUOffload(1, tag="graphs"):
        return build(seed)


def two_graphs(first, second):
    with Copied() as copied:
        graphs = [offloaded(1), offloaded(2)]
        for index in (first, second):
            graphs[index][0].backward()
    for index in (0, 1):
        assert same_bits(graphs[index][1].grad, plain_gradient(index + 1))
    assert copied.out > 0 and copied.back > 0


@case
def two_live_graphs_go_backward_in_the_order_of_their_forward():
    two_graphs(0, 1)


@case
def two_live_graphs_go_backward_in_the_other_order():
    two_graphs(1, 0)


@case
def a_dropped_graph_gives_device_and_host_bytes_back():
    spillway.step()
    torch.cuda.synchronize()
    spillway.step()
    device, host = torch.cuda.memory_allocated(), residency()["on_host_bytes"]
    with Copied() as copied:
        loss, x = offloaded(3)
        assert residency()["on_host_bytes"] > host
        del loss, x
        assert residency()["on_host_bytes"] == host
    # Over PyTorch's own allocator the sources are held until their copies have passed.
    torch.cuda.synchronize()
    spillway.step()
    assert torch.cuda.memory_allocated() == device
    assert copied.out > 0 and copied.back == 0


@case
def a_graph_whose_backward_stops_half_way_gives_everything_back():
    host = residency()["on_host_bytes"]

    class Stop(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            raise ValueError("stopped")

    with spillway.CPUOffload(1, tag="graphs"):
        x = torch.randn(64, 64, device="cuda", requires_grad=True)
        loss = Stop.apply((x * 2).sigmoid()).tanh().sum()
    with contextlib.suppress(ValueError):
        loss.backward()
    del loss
    # The engine's thread releases the failed pass before it begins another one.
    torch.ones(1, device="cuda", requires_grad=True).sum().backward()
    assert residency()["on_host_bytes"] == host


@case
def a_retained_graph_goes_backward_twice():
    expected = plain_gradient(4)
    with Copied() as copied:
        loss, x = offloaded(4)
        loss.backward(retain_graph=True)
        once = x.grad.clone()
        x.grad = None
        loss.backward()
    assert same_bits(once, expected) and same_bits(x.grad, expected)
    assert copied.back == 2 * copied.out > 0


@case
def the_gradient_of_a_gradient_equals_plain():
    def twice(region_ratio):
        torch.manual_seed(5)
        x = torch.randn(64, 64, device="cuda", requires_grad=True)
        with spillway.CPUOffload(region_ratio, tag=f"double {region_ratio}"):
            y = ((x * 2).sigmoid() * x).tanh().pow(3).sum()
            (gradient,) = torch.autograd.grad(y, x, create_graph=True)
            penalty = gradient.pow(2).sum()
        penalty.backward()
        return gradient.detach(), x.grad

    with Copied() as copied:
        ours = twice(1)
    assert copied.out > 0 and copied.back > 0
    assert all(same_bits(a, b) for a, b in zip(ours, twice(0), strict=True))


def edit_raises(ratio):
    with spillway.CPUOffload(ratio, tag=f"edit {ratio}"), Copied() as copied:
        x = torch.randn(64, 64, device="cuda", requires_grad=True)
        y = (x * 2).sigmoid()
        loss = y.sum()
    assert (copied.out > 0) == (ratio > 0)
    torch.cuda.synchronize()  # an edit that autograd forbids may overtake the copy
    with torch.no_grad():
        y.add_(1)
    with an_edit_is_noticed():
        loss.backward()


@case
def an_edit_of_a_moved_tensor_raises():
    edit_raises(1)


@case
def an_edit_of_a_kept_tensor_raises():
    edit_raises(0)


@case
def an_output_saved_by_its_own_node_does_not_leak():
    import weakref

    with spillway.CPUOffload(0, tag="leak"):
        y = torch.randn(64, 64, device="cuda", requires_grad=True).exp()
    gone = weakref.ref(y)
    del y
    assert gone() is None


@case
def a_storage_saved_again_after_an_edit_is_fetched_as_it_was_then():
    first, second = [], []
    with spillway.CPUOffload(1, tag="edited"), Copied() as copied:
        t = torch.full((1024,), 1.0, device="cuda")
        a = save(first, t)
        torch.cuda.synchronize()
        t.add_(1)
        b = save(second, t)
        del t
    torch.cuda.synchronize()
    spillway.step()  # over PyTorch's allocator the source ends here
    with Copied() as returned:
        b.backward()
    assert copied.out == 2 * 1024 * 4 and returned.back > 0  # each as it was when it was saved
    assert torch.equal(second[0], torch.full((1024,), 2.0, device="cuda"))
    with an_edit_is_noticed():
        a.backward()


@case
def parts_of_a_storage_with_counters_of_their_own_are_fetched_as_last_saved():
    seen = []
    with spillway.CPUOffload(1, tag="chunks"), Copied() as copied:
        whole = torch.zeros(2048, device="cuda")
        left, right = whole.unsafe_chunk(2)
        left.fill_(1)
        a = save(seen, left)
        torch.cuda.synchronize()
        right.fill_(2)
        b = save(seen, right)
        del whole, left, right
    torch.cuda.synchronize()
    spillway.step()
    (a + b).backward()
    assert copied.out > 0
    assert sorted(t.unique().tolist() for t in seen) == [[1.0], [2.0]]
