# SPDX-License-Identifier: Apache-2.0
"""Copies: memcpy where a GPU does one, asynchronous where a GPU is, and right in every layout and type."""

import pytest
import torch

GRID = torch.arange(12.0).view(3, 4)


def test_a_pinned_copy_counts_as_one_asynchronous_memcpy(emulator):
    host = torch.ones(1024).pin_memory()
    device = torch.empty(1024, device="cuda")
    before, syncs = emulator.count("cudaMemcpyAsync"), emulator.count("host_syncs")
    device.copy_(host, non_blocking=True)
    assert emulator.count("cudaMemcpyAsync") == before + 1
    assert emulator.count("host_syncs") == syncs


def test_a_dense_copy_on_the_device_is_a_memcpy(emulator):
    source = torch.ones(2, 3, 4, 4, device="cuda").contiguous(memory_format=torch.channels_last)
    before = emulator.count("cudaMemcpyAsync")
    assert torch.equal(source.clone().cpu(), source.cpu())
    assert emulator.count("cudaMemcpyAsync") == before + 3


def test_a_plain_operator_does_not_make_the_host_wait(emulator):
    x = torch.ones(8, device="cuda")
    syncs = emulator.count("host_syncs")
    (x * 2).add_(1)
    assert emulator.count("host_syncs") == syncs


@pytest.mark.parametrize(
    "call", [torch.nonzero, torch.unique, lambda x: torch.equal(x, x), lambda x: x[x > 0]]
)
def test_a_result_that_depends_on_values_makes_the_host_wait(emulator, call):
    x = torch.ones(8, device="cuda")
    syncs = emulator.count("host_syncs")
    call(x)
    assert emulator.count("host_syncs") > syncs


@pytest.mark.parametrize("non_blocking", [False, True])
@pytest.mark.parametrize(
    "view", [lambda t: t, lambda t: t.t(), lambda t: t[:, ::2], lambda t: t[1:].expand(2, 2, 4)]
)
def test_layouts_survive_both_ways(view, non_blocking):
    there = view(GRID).to("cuda", non_blocking=non_blocking)
    back = torch.zeros_like(view(GRID)).copy_(view(GRID.cuda()), non_blocking=non_blocking)
    torch.cuda.synchronize()
    assert torch.equal(there.cpu(), view(GRID))
    assert torch.equal(back, view(GRID))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int64, torch.bool, torch.complex64])
def test_types_convert_on_the_way(dtype):
    assert torch.equal(GRID.to("cuda", dtype).cpu(), GRID.to(dtype))
    assert torch.equal(GRID.cuda().to("cpu", dtype), GRID.to(dtype))
    assert torch.equal(GRID.cuda().to(dtype).cpu(), GRID.to(dtype))


def test_views_of_the_device_are_written_through():
    grid = GRID.cuda()
    grid[:, 1].copy_(torch.full((3,), 9.0))
    grid.t()[0].copy_(torch.full((3,), 7.0, device="cuda"))
    expected = GRID.clone()
    expected[:, 1], expected[:, 0] = 9, 7
    assert torch.equal(grid.cpu(), expected)


def test_lazy_conjugates_are_resolved():
    numbers = torch.tensor([1 + 2j, 3 - 4j])
    assert torch.equal(numbers.cuda().conj().cpu(), numbers.conj())
    assert torch.equal((numbers.cuda().conj() * 1).cpu(), (numbers.conj() * 1))


def sleep_before_an_event():
    torch.cuda._sleep(1_000_000)
    event = torch.cuda.Event()
    event.record()
    pending = not event.query()
    event.synchronize()
    return [pending, event.query()]


def test_a_sleeping_stream_is_busy_until_it_is_waited_for(elsewhere):
    assert elsewhere(sleep_before_an_event, schedule="late") == [True, True]
