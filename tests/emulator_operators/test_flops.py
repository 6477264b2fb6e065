# SPDX-License-Identifier: Apache-2.0
"""The operations that an operator is taken to do are those that PyTorch's own formulas count."""

import pytest
import torch
import torch.nn.functional as F
from test_costs import milliseconds
from torch.utils.flop_counter import FlopCounterMode

RATE = 1e14  # operations a second
DRY = dict(
    shape_only="1",
    memory="80GiB",
    rates=f"memory=1e18,half={RATE},product=1,attention=1,attention_backward=1,"
    "kernel=1e-9,launch=1e-9,call=1e-9",
)


def made(*sizes):
    return torch.empty(sizes, device="cuda", dtype=torch.bfloat16, requires_grad=True)


def convolutions():
    x, y = made(32, 256, 64, 64), made(4, 64, 32, 32, 32)
    weight, across, grouped, up = (
        made(512, 256, 3, 3), made(128, 64, 3, 3, 3), made(512, 64, 3, 3), made(256, 128, 4, 4)
    )  # fmt: skip
    line, along = made(32, 256, 8192), made(512, 256, 5)

    def backward(result, *wanted):
        return lambda: torch.autograd.grad(result, wanted, torch.empty_like(result), retain_graph=True)

    plain = F.conv2d(x, weight, padding=1)
    wider = F.conv_transpose2d(x, up, stride=2, padding=1)
    return {
        "conv2d": lambda: F.conv2d(x, weight, padding=1),
        "with strides": lambda: F.conv2d(x, weight, stride=2),
        "in groups": lambda: F.conv2d(x, grouped, padding=1, groups=4),
        "conv1d": lambda: F.conv1d(line, along),
        "conv3d": lambda: F.conv3d(y, across),
        "transposed": lambda: F.conv_transpose2d(x, up, stride=2, padding=1),
        "backward": backward(plain, x, weight),
        "of images that need no gradient": backward(plain, weight),
        "of a frozen weight": backward(plain, x),
        "of a transposed one": backward(wider, x, up),
    }


def products():
    a, batch = made(4096, 4096), made(8, 2048, 2048)
    sequence = made(128, 64, 1024)
    return {
        "mm": lambda: a @ a,
        "einsum": lambda: torch.einsum("bij,bjk->bik", batch, batch),
        "linear": lambda: F.linear(sequence, a[:, :1024], a[0]),
    }


def attention():
    query, key = made(4, 16, 2048, 64), made(4, 16, 4096, 64)
    return {"attention": lambda: F.scaled_dot_product_attention(query, key, key)}


def counted_and_modeled(kind):
    found = {}
    for name, operation in globals()[kind]().items():
        with FlopCounterMode(display=False) as counter:
            operation()
        found[name] = [counter.get_total_flops(), milliseconds(operation) / 1e3 * RATE]
    return found


@pytest.mark.parametrize("kind", ["convolutions", "products", "attention"])
def test_operators_do_the_operations_that_pytorch_counts(elsewhere, kind):
    for name, (counted, modeled) in elsewhere(counted_and_modeled, kind, **DRY).items():
        assert modeled == pytest.approx(counted, rel=1e-3), name
        assert counted > 1e10, name


HEADS, WIDTH, LENGTH, SEQUENCES = 16, 64, 2048, 4


def not_counted():
    """What PyTorch has no formula for, or one for other places of its dimensions."""
    aten = torch.ops.aten
    dense = made(SEQUENCES, LENGTH, HEADS, WIDTH)
    packed = dense.flatten(0, 1)
    ends = torch.arange(0, SEQUENCES * LENGTH + 1, LENGTH, device="cuda", dtype=torch.int32)

    def flash(x, ends, causal):
        return aten._flash_attention_forward(x, x, x, ends, ends, LENGTH, LENGTH, 0.0, causal, False)

    def flash_backward(out, sums, *state):
        return aten._flash_attention_backward(
            packed, packed, packed, packed, out, sums, ends, ends, LENGTH, LENGTH, 0.0, False, *state
        )

    def efficient(kind):
        return aten._efficient_attention_forward(*[dense] * 3, None, None, None, None, None, 0.0, kind, True)

    out, sums, *state, _ = flash(packed, ends, False)
    a, b = made(8192, 1024), made(8, 1024, 512)
    upto = torch.arange(1024, 8193, 1024, device="cuda", dtype=torch.int32)
    operations = {
        "flash": lambda: flash(dense, None, False),
        "flash, causal": lambda: flash(dense, None, True),
        "flash, packed": lambda: flash(packed, ends, False),
        "flash, backward": lambda: flash_backward(out, sums, *state),
        "efficient": lambda: efficient(0),
        "efficient, causal": lambda: efficient(1),
        "grouped": lambda: torch._grouped_mm(a, b, offs=upto),
        "addbmm": lambda: torch.addbmm(b[0], b, made(8, 512, 512)),
    }
    return {name: milliseconds(each) / 1e3 * RATE for name, each in operations.items()}


def test_packed_attention_and_grouped_products_do_theirs(elsewhere):
    scores = 4 * SEQUENCES * HEADS * LENGTH**2 * WIDTH
    expected = {
        "flash": scores, "flash, causal": scores / 2,
        "flash, packed": scores, "flash, backward": 2.5 * scores,
        "efficient": scores, "efficient, causal": scores / 2,
        "grouped": 2 * 8192 * 1024 * 512, "addbmm": 2 * 8 * 1024 * 512 * 512,
    }  # fmt: skip
    assert elsewhere(not_counted, **DRY) == pytest.approx(expected, rel=0.01)
