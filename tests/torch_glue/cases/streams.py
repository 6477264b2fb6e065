# SPDX-License-Identifier: Apache-2.0
"""Copies follow the stream that is current, whichever it is."""

import spillway
import torch

from cases import case
from cases.measure import Copied, same_bits, save


def gradient(ratio, stream):
    torch.manual_seed(13)
    x = torch.randn(64, 256, device="cuda", requires_grad=True)
    if stream is not None:
        stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream), spillway.CPUOffload(ratio, tag=f"stream {ratio}"):
        y = x
        for _ in range(4):
            y = (y * 2).sigmoid()
        loss = y.sum()
    if stream is not None:
        torch.cuda.current_stream().wait_stream(stream)
    loss.backward()
    return x.grad


@case
def saved_tensors_of_a_side_stream_move_after_their_producer():
    stream = torch.cuda.Stream()
    for _ in range(3):
        with Copied() as copied:
            ours = gradient(1, stream)
        assert copied.out > 0
        assert same_bits(ours, gradient(0, None))


@case
def a_graph_over_two_streams_equals_plain():
    def gradient_over_two(ratio):
        torch.manual_seed(17)
        x = torch.randn(64, 256, device="cuda", requires_grad=True)
        side = torch.cuda.Stream()
        with spillway.CPUOffload(ratio, tag=f"two streams {ratio}"):
            shared = (x * 2).sigmoid()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                left = (shared * 3).tanh()
                shared.record_stream(side)
            right = (shared * 5).sigmoid()
            torch.cuda.current_stream().wait_stream(side)
            left.record_stream(torch.cuda.current_stream())
            loss = (left * right).sum()
            del shared, left, right
        loss.backward()
        return x.grad

    with Copied() as copied:
        ours = gradient_over_two(1)
    assert copied.out > 0 and copied.back > 0
    assert same_bits(ours, gradient_over_two(0))


def fill_free_memory():
    """Writes to whatever blocks of this size have been released."""
    held = [torch.full((256, 256), float(value), device="cuda") for value in range(32)]
    assert len({t.data_ptr() for t in held}) == 32


@case
def a_holder_may_write_to_a_moved_tensor_after_the_backward_pass():
    held = torch.randn(256, 256, device="cuda")
    x = torch.randn(256, 256, device="cuda", requires_grad=True)
    with spillway.CPUOffload(1, tag="written"), Copied() as copied:
        loss = (x * held).sum()
    loss.backward(retain_graph=True)  # the graph lives on: it is the backward pass that orders the two
    held.add_(1)
    assert copied.out > 0


@case
def a_holder_may_write_to_a_moved_tensor_after_the_graph_is_dropped():
    held = torch.randn(256, 256, device="cuda")
    x = torch.randn(256, 256, device="cuda", requires_grad=True)
    with spillway.CPUOffload(1, tag="written and dropped"), Copied() as copied:
        loss = (x * held).sum()
    del loss
    held.add_(1)
    assert copied.out > 0


@case
def memory_of_an_unused_prefetched_copy_is_reused_in_order():
    seen = []
    with spillway.CPUOffload(1, tag="unused"), Copied() as copied:
        first = save(seen, torch.randn(256, 256, device="cuda"))
        second = save(seen, torch.randn(256, 256, device="cuda"))
    torch.cuda.synchronize()
    spillway.step()  # over PyTorch's allocator the sources end here
    second.backward()  # begins to fetch what `first` saved
    assert copied.out > 0
    del first
    fill_free_memory()


@case
def a_copy_that_another_stream_also_read_is_reused_in_order():
    seen = []
    side = torch.cuda.Stream()
    with spillway.CPUOffload(1, tag="both streams"):
        base = torch.randn(256, 256, device="cuda")
        here = save(seen, base)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            there = save(seen, base)
        del base
    torch.cuda.synchronize()
    spillway.step()
    here.backward()
    there.backward()
    with torch.cuda.stream(side):
        total = seen[1].sum()  # still under way on the side stream when the memory is released
    expected = seen[0].sum().cpu()
    seen.clear()
    del here, there
    fill_free_memory()
    torch.cuda.synchronize()
    assert torch.equal(total.cpu(), expected)
