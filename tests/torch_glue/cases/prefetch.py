# SPDX-License-Identifier: Apache-2.0
"""Prefetches before the first use: in the order of the last step, and within the headroom."""

from itertools import accumulate

import spillway
import torch

from cases import case
from cases.measure import residency, same_bits

SIZES = tuple(4 * 1024 * (100 + 7 * k) for k in range(8))  # bytes, all of them different
TAGS = iter(range(10**6))


class Saves(torch.autograd.Function):
    """Saves an otherwise unreferenced tensor; `seen` gets the bytes copied back when it is unpacked."""

    @staticmethod
    def forward(ctx, x, size, seen):
        saved = torch.arange(size // 4, device="cuda", dtype=torch.float32)
        ctx.save_for_backward(saved)
        ctx.seen = seen
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        (saved,) = ctx.saved_tensors
        assert same_bits(saved, torch.arange(saved.numel(), dtype=torch.float32))
        ctx.seen.append(residency()["fetched_bytes"])
        return grad, None, None


def step(region, order):
    """Saves one tensor of each size and wants them in that order: the bytes that were back by each."""
    before, seen = residency()["fetched_bytes"], []
    with region:
        graphs = [Saves.apply(torch.ones(1, device="cuda", requires_grad=True), size, seen) for size in SIZES]
    torch.cuda.synchronize()  # over PyTorch's allocator nothing is released before its copy has passed
    for index in order:
        graphs[index].backward()
    return [bytes_ - before for bytes_ in seen]


def region(headroom):
    return spillway.CPUOffload(1, tag=f"prefetch {next(TAGS)}", prefetch_headroom=headroom)


def back_by_then(order, headroom):
    """By definition, at each use the next ones are fetched, in order, while they fit."""
    early, back, result = [], 0, []
    for place, index in enumerate(order):
        if index in early:
            early.remove(index)
        else:
            back += SIZES[index]
        for following in order[place + 1 :]:
            if following in early:
                continue
            if sum(SIZES[each] for each in early) + SIZES[following] > headroom:
                break
            early.append(following)
            back += SIZES[following]
        result.append(back)
    return result


REVERSE = tuple(range(len(SIZES)))[::-1]
MIXED = (3, 0, 6, 5, 1, 7, 2, 4)


@case
def a_first_step_begins_with_those_that_were_saved_last():
    for headroom in (SIZES[-1], 3 * SIZES[-1]):
        assert step(region(headroom), REVERSE) == back_by_then(REVERSE, headroom)


@case
def copies_back_begin_in_the_order_of_the_last_step_as_far_as_the_headroom_goes():
    for headroom in (max(SIZES), 3 * max(SIZES), sum(SIZES)):
        same = region(headroom)
        step(same, MIXED)
        for _ in range(2):
            assert step(same, MIXED) == back_by_then(MIXED, headroom), headroom


@case
def what_is_back_and_not_used_never_exceeds_the_headroom():
    headroom = 2 * max(SIZES)
    changing = region(headroom)
    for order in (MIXED, REVERSE, MIXED[::-1], tuple(range(len(SIZES)))):
        used = 0
        backs = step(changing, order)
        assert backs[-1] == sum(SIZES)
        for index, back in zip(order, backs, strict=True):
            used += SIZES[index]
            assert back - used <= headroom, (order, index)


@case
def an_order_that_changes_brings_everything_back_once():
    changing = region(2 * max(SIZES))
    for order in (REVERSE, MIXED, MIXED[::-1], REVERSE):
        assert step(changing, order)[-1] == sum(SIZES)


@case
def no_headroom_fetches_on_demand():
    backs = step(region(0), REVERSE)
    assert backs == [sum(SIZES[index] for index in REVERSE[: place + 1]) for place in range(len(SIZES))]


@case
def without_a_headroom_one_storage_at_a_time_is_fetched_early():
    back = list(accumulate(SIZES[index] for index in REVERSE))
    assert step(region(None), REVERSE) == [*back[1:], back[-1]]


@case
def what_is_early_and_never_wanted_gives_its_headroom_back():
    same = region(max(SIZES))
    for _ in range(3):
        seen = []
        with same:
            graphs = [
                Saves.apply(torch.ones(1, device="cuda", requires_grad=True), size, seen) for size in SIZES
            ]
        torch.cuda.synchronize()
        graphs[-1].backward()  # the one before it is fetched, and is dropped
        del graphs
    step(same, REVERSE)
    assert step(same, REVERSE) == back_by_then(REVERSE, max(SIZES))
