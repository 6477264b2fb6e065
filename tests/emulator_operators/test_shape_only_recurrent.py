# SPDX-License-Identifier: Apache-2.0
"""Dry runs: recurrent layers take what cuDNN takes, and not what PyTorch's cells would."""

import pytest
import torch
from torch import nn

DRY = dict(shape_only="1", memory="80GiB", clock="virtual")

# kind, layers, directions, steps, batch, input, hidden, type, dropout: bytes of the reserve that cuDNN 9.19
# asked for on an H100 (torch 2.11.0, CUDA 13.0).
MEASURED = [
    ("LSTM", 1, 1, 128, 32, 256, 256, "float32", 0.0, 20971776),
    ("LSTM", 1, 1, 128, 32, 256, 256, "float16", 0.0, 10486016),
    ("LSTM", 1, 1, 128, 32, 256, 256, "float64", 0.0, 41943296),
    ("LSTM", 1, 1, 128, 32, 256, 256, "bfloat16", 0.0, 10486016),
    ("LSTM", 1, 1, 128, 32, 512, 256, "float32", 0.0, 20971776),
    ("LSTM", 3, 1, 128, 32, 256, 256, "float32", 0.0, 71303424),
    ("LSTM", 2, 2, 128, 32, 256, 256, "float32", 0.0, 92274944),
    ("LSTM", 3, 1, 128, 32, 256, 256, "float16", 0.2, 35913984),
    ("LSTM", 1, 1, 512, 64, 1024, 1024, "float16", 0.0, 335544576),
    ("LSTM", 2, 2, 100, 20, 1000, 1000, "float16", 0.0, 88000256),
    ("LSTM", 1, 1, 17, 5, 33, 65, "float32", 0.0, 110784),
    ("GRU", 1, 1, 128, 32, 256, 256, "float32", 0.0, 25166080),
    ("GRU", 2, 2, 100, 20, 1000, 1000, "float16", 0.0, 104000256),
    ("GRU", 3, 1, 128, 32, 256, 256, "float16", 0.2, 42205440),
    ("RNN", 1, 1, 128, 32, 256, 256, "float32", 0.0, 4194560),
    ("RNN", 2, 2, 128, 32, 256, 256, "float32", 0.0, 25166080),
    ("RNN", 2, 1, 128, 32, 256, 256, "float32", 0.2, 12714240),
]


def layer_of(kind, layers, directions, width, hidden, dropout, **options):
    return getattr(nn, kind)(
        width, hidden, layers, bidirectional=directions == 2, dropout=dropout, device="cuda", **options
    )


def rounded(size):
    return -(-size // 512) * 512


def kept(kind, layers, directions, steps, batch, width, hidden, name, dropout):
    """What a forward pass leaves besides its results and its first states."""
    numbers = getattr(torch, name)
    layer = layer_of(kind, layers, directions, width, hidden, dropout, dtype=numbers)
    x = torch.empty(steps, batch, width, device="cuda", dtype=numbers, requires_grad=True)
    before = torch.cuda.memory_allocated()
    out, states = layer(x)
    states = states if isinstance(states, tuple) else (states,)
    results = sum(rounded(each.nbytes) for each in (out, *states, *states))
    pieces = sum(each.numel() for each in layer.parameters()) * 2 if name == "bfloat16" else 0
    reserve = torch.cuda.memory_allocated() - before - results - (rounded(pieces) if pieces else 0)
    out.sum().backward()
    shapes = [list(each.grad.shape) == list(each.shape) for each in (x, *layer.parameters())]
    with torch.no_grad():
        layer(x)
    return reserve, all(shapes)


def kept_by_all(cases):
    return [kept(*case) for case in cases]


def test_the_reserve_is_what_cudnn_asked_for(elsewhere):
    found = elsewhere(kept_by_all, [case[:-1] for case in MEASURED], **DRY)
    for (reserve, has_gradients), case in zip(found, MEASURED, strict=True):
        assert has_gradients, case
        assert abs(reserve - case[-1]) <= 1024, case


def variants():
    """Shapes of everything that a layer may be asked for."""
    results = []
    for kind in ("LSTM", "GRU", "RNN"):
        x = torch.empty(6, 40, 64, device="cuda", requires_grad=True)
        layer = layer_of(kind, 2, 2, 64, 128, 0.0, batch_first=True)
        out, states = layer(x)
        out.sum().backward()
        hidden = states[0] if kind == "LSTM" else states
        results.append([list(out.shape), list(hidden.shape), list(x.grad.shape), x.grad.is_contiguous()])
        packed = nn.utils.rnn.pack_padded_sequence(x.detach(), [40, 30, 20, 9, 9, 1], batch_first=True)
        out, _ = layer(packed)
        results.append(list(out.data.shape))
        out, _ = layer.eval()(x.detach())
        results.append(list(out.shape))
    projecting = layer_of("LSTM", 2, 1, 64, 128, 0.0, proj_size=32)
    out, (h, c) = projecting(torch.empty(40, 6, 64, device="cuda"))
    out.sum().backward()
    results.append([list(each.shape) for each in (out, h, c)])
    results.append(list(projecting.weight_hr_l0.grad.shape))
    return results


def test_shapes_are_those_of_a_real_run(elsewhere):
    assert elsewhere(variants, **DRY) == elsewhere(variants)


def under_autocast(kind):
    layer = layer_of("LSTM", 1, 1, 1024, 1024, 0.0)
    x = torch.empty(512, 64, 1024, device="cuda", requires_grad=True)
    before = torch.cuda.memory_allocated()
    with torch.autocast("cuda", getattr(torch, kind)):
        out, _ = layer(x)
    held = torch.cuda.memory_allocated() - before
    out.float().sum().backward()
    return str(out.dtype), held / out.nbytes, str(x.grad.dtype)


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_autocast_keeps_a_reserve_in_half_precision(elsewhere, kind):
    of, held, of_gradient = elsewhere(under_autocast, kind, **DRY)
    assert (of, of_gradient) == ("torch.float16", "torch.float32")
    assert 7 <= held < 7.5  # the cast input, the output, and five gates and cells; states and weights


def small(kind):
    torch.manual_seed(0)
    layer = layer_of(kind, 1, 1, 2, 3, 0.0)
    out, _ = layer(torch.ones(4, 2, 2, device="cuda"))
    return out.tolist()


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_a_small_layer_is_computed(elsewhere, kind):
    assert elsewhere(small, kind, rng="cpu", **DRY) == elsewhere(small, kind, rng="cpu")


def time_of(hidden):
    layer = layer_of("LSTM", 1, 1, hidden, hidden, 0.0, dtype=torch.half)
    x = torch.empty(256, 64, hidden, device="cuda", dtype=torch.half)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    layer(x)
    begin.record()
    layer(x)
    end.record()
    end.synchronize()
    return begin.elapsed_time(end), 2 * 256 * 64 * 8 * hidden**2


def test_a_layer_takes_the_time_of_its_products(elsewhere):
    took, operations = elsewhere(time_of, 2048, rates="half=100e12", **DRY)
    assert took >= operations / 100e12 * 1e3
