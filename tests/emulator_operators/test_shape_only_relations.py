# SPDX-License-Identifier: Apache-2.0
"""Pairs of dry runs: the effect of one change of the job or of the GPU, with its size."""

import ctypes

import llama
import pytest
import torch

DRY = dict(shape_only="1", memory="141GiB")


def trained(layers, batch, length):
    model = llama.made(layers)
    layer = sum(llama.rounded(each.nbytes) for each in model.layers[0].parameters())
    return {**llama.train(model, batch, length, steps=2), "layer": layer}


def of_no_token(length, layers, size=128):
    """What is saved for any batch: the tables of angles, attention's seeds and offsets, and the loss."""
    return 2 * llama.rounded(length * size) + layers * 2 * llama.rounded(8) + llama.rounded(2)


def test_twice_the_batch_saves_twice_the_bytes(elsewhere):
    one, two = (elsewhere(trained, 4, batch, 2048, **DRY)["saved"] for batch in (2, 4))
    fixed = of_no_token(2048, 4)
    assert two - fixed == 2 * (one - fixed)


def test_twice_the_length_saves_twice_the_bytes(elsewhere):
    one, two = (elsewhere(trained, 4, 2, length, **DRY)["saved"] for length in (2048, 4096))
    assert two - of_no_token(4096, 4) == 2 * (one - of_no_token(2048, 4))


def test_a_layer_more_takes_its_closed_form(elsewhere):
    four, five = (elsewhere(trained, layers, 2, 2048, **DRY) for layers in (4, 5))
    grown = {name: five[name] - four[name] for name in ("before", "saved", "gradients")}
    counters = 9 * llama.rounded(4)  # of the optimizer's steps, one for each parameter
    assert five["layer"] == four["layer"]
    assert grown["before"] == 3 * five["layer"] + counters  # parameters and two states
    assert grown["gradients"] == five["layer"]
    assert grown["saved"] == llama.saved_bytes(2, 2048, 5) - llama.saved_bytes(2, 2048, 4)


def test_all_of_a_layer_more_is_in_the_peak(elsewhere):
    """It lies after the forward pass, so that gradients do not count yet."""
    four, five = (elsewhere(trained, layers, 4, 4096, **DRY) for layers in (2, 3))
    grown = {name: five[name] - four[name] for name in ("before", "saved", "peak")}
    assert grown["peak"] == grown["before"] + grown["saved"]


HALF, PRODUCT = 1e15, 0.5  # operations a second, and what products reach of them
TIMED = {**DRY, "rates": f"half={HALF},product={PRODUCT}"}


def products_of_a_layer(batch, length, width=4096, inner=14336, groups=8, size=128):
    """Milliseconds of the forward pass's, and of twice as many in the backward pass."""
    weights = 2 * width * width + 2 * width * groups * size + 3 * width * inner
    return 1e3 * 3 * 2 * batch * length * weights / (HALF * PRODUCT)


def test_a_layer_more_takes_the_time_that_the_one_before_took(elsewhere):
    two, three, four = (elsewhere(trained, layers, 2, 2048, **TIMED)["ms"] for layers in (2, 3, 4))
    assert four - three == pytest.approx(three - two, rel=1e-3)
    assert 1 < (three - two) / products_of_a_layer(2, 2048) < 1.5  # attention, norms and the optimizer


def test_twice_the_batch_takes_twice_the_time_of_what_is_done_for_each_token(elsewhere):
    two, four, eight = (elsewhere(trained, 2, batch, 2048, **TIMED)["ms"] for batch in (2, 4, 8))
    assert eight - four == pytest.approx(2 * (four - two), rel=0.01)
    once = 2 * two - four  # weights, their gradients and states, launches
    assert 0 < once < two / 4


def moved():
    count = ctypes.CDLL(None).spillway_emulator_count
    count.restype = ctypes.c_uint64
    count.argtypes = [ctypes.c_char_p]
    return sum(count(name) for name in (b"bytes_to_device", b"bytes_to_host"))


def kept_on_the_host():
    """A step whose copies wait for the kernels and these for the copies, all on one stream."""
    model = llama.made(2, vocabulary=1024)
    region = torch.autograd.graph.save_on_cpu(pin_memory=True)
    ms = []
    for _ in range(2):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        tokens = torch.randint(0, 1024, (1, 4096), device="cuda")
        torch.cuda.synchronize()
        before = moved()
        start.record()
        with region:
            loss = model(tokens).sum()
        loss.backward()
        end.record()
        end.synchronize()
        ms.append(start.elapsed_time(end))
    return {"ms": ms[-1], "bytes": moved() - before, "peak": torch.cuda.max_memory_allocated()}


def test_a_step_of_copies_grows_by_what_a_slower_link_takes_for_its_bytes(elsewhere):
    sixteen, eight, four = (
        elsewhere(kept_on_the_host, link_h2d=rate, link_d2h=rate, **DRY)
        for rate in ("16000000000", "8000000000", "4000000000")
    )
    assert sixteen["bytes"] == eight["bytes"] == four["bytes"] > 1 << 30
    assert sixteen["peak"] == eight["peak"] == four["peak"]
    longer = 1e3 * four["bytes"] / 16e9
    assert eight["ms"] - sixteen["ms"] == pytest.approx(longer, rel=1e-4)
    assert four["ms"] - eight["ms"] == pytest.approx(2 * longer, rel=1e-4)


def product(length):
    a, b = (torch.empty(length, 8192, dtype=torch.bfloat16, device="cuda") for _ in range(2))
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    for _ in range(10):
        torch.mm(a, b.t())
    end.record()
    end.synchronize()
    return start.elapsed_time(end)


def test_half_the_arithmetic_takes_twice_the_time(elsewhere):
    fast, slow = (elsewhere(product, 8192, rates=f"half={rate}", **DRY) for rate in ("1e15", "5e14"))
    once = 1e3 * 10 * 2 * 8192**3 / 1e15
    assert slow - fast == pytest.approx(once, rel=1e-3)
