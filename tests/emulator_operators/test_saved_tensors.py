# SPDX-License-Identifier: Apache-2.0
"""Autograd saves what it saves on a GPU: types and shapes, by PyTorch's source.

What is saved on the host is marked: its bytes do not count as the device's.
"""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

B, H, S, D = 2, 4, 40, 16
WIDTH = 24
F32, BF16 = torch.float32, torch.bfloat16


def random(*shape, dtype=F32):
    return torch.randn(*shape, device="cuda").to(dtype).requires_grad_()


def heads(dtype, count=H):
    return random(B, S, count, D, dtype=dtype).transpose(1, 2)


def attend(backend, dtype, **options):
    with sdpa_kernel(backend):
        return F.scaled_dot_product_attention(*(heads(dtype) for _ in range(3)), **options)


def labels(n):
    return torch.zeros(n, dtype=torch.long, device="cuda")


def saved_by(call):
    """(type, shape, host or not) of every saved tensor, sorted."""
    seen = []

    def pack(tensor):
        kind = str(tensor.dtype).removeprefix("torch.")
        seen.append((kind, tuple(tensor.shape)) + (() if tensor.is_cuda else ("host",)))
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        call()
    return sorted(seen)


QKV = [(B, H, S, D)] * 3
PADDED = 64  # the length, rounded up to 32


# The operation, what is saved, and where PyTorch decides it: derivatives.yaml is in tools/autograd, other
# files are in aten/src/ATen/native unless a path is given.
ROWS = {
    # derivatives.yaml addmm, mm: the factors; the weight transposed
    "linear, float32": (
        lambda: F.linear(random(5, WIDTH), random(7, WIDTH), random(7)),
        [("float32", (5, WIDTH)), ("float32", (WIDTH, 7))],
    ),
    # aten/src/ATen/autocast_mode.cpp: cached casts are saved, not the originals
    "linear under autocast": (
        lambda: autocast(lambda: F.linear(random(5, WIDTH), random(7, WIDTH))),
        [("bfloat16", (5, WIDTH)), ("bfloat16", (WIDTH, 7))],
    ),
    # cuda/layer_norm_kernel.cu layer_norm_cuda: mean and rstd in the accumulation type
    "layer_norm, bfloat16": (
        lambda: F.layer_norm(
            random(5, WIDTH, dtype=BF16), (WIDTH,), random(WIDTH, dtype=BF16), random(WIDTH, dtype=BF16)
        ),
        [
            ("bfloat16", (5, WIDTH)),
            ("bfloat16", (WIDTH,)),
            ("bfloat16", (WIDTH,)),
            ("float32", (5, 1)),
            ("float32", (5, 1)),
        ],
    ),
    "layer_norm, float32": (
        lambda: F.layer_norm(random(5, WIDTH), (WIDTH,), random(WIDTH), random(WIDTH)),
        [("float32", (5, 1))] * 2 + [("float32", (5, WIDTH))] + [("float32", (WIDTH,))] * 2,
    ),
    # layer_norm.cpp rms_norm_symint, cuda/layer_norm_kernel.cu _fused_rms_norm_cuda: rstd in float
    "rms_norm, bfloat16": (
        lambda: F.rms_norm(random(5, WIDTH, dtype=BF16), (WIDTH,), random(WIDTH, dtype=BF16)),
        [("bfloat16", (5, WIDTH)), ("bfloat16", (WIDTH,)), ("float32", (5, 1))],
    ),
    # Dropout.cpp is_fused_kernel_acceptable, cuda/Dropout.cu native_dropout_cuda: a mask of bools
    "dropout": (lambda: F.dropout(random(5, WIDTH, dtype=BF16), 0.5), [("bool", (5, WIDTH))]),
    # derivatives.yaml gelu: the input
    "gelu": (lambda: F.gelu(random(5, WIDTH, dtype=BF16)), [("bfloat16", (5, WIDTH))]),
    # derivatives.yaml _log_softmax (its result) and nll_loss_forward (its input, labels and total weight)
    "cross_entropy, bfloat16": (
        lambda: F.cross_entropy(random(5, WIDTH, dtype=BF16), labels(5)),
        [("bfloat16", ()), ("bfloat16", (5, WIDTH)), ("bfloat16", (5, WIDTH)), ("int64", (5,))],
    ),
    # cuda/Normalization.cu batch_norm_cuda: mean and 1/deviation in the accumulation type
    "batch_norm": (
        lambda: F.batch_norm(random(4, 3, 5, 5), mean(), mean(), random(3), random(3), training=True),
        [("float32", (3,))] * 5 + [("float32", (4, 3, 5, 5))],
    ),
    # derivatives.yaml convolution: input and weight
    "conv2d": (
        lambda: F.conv2d(random(2, 3, 8, 8), random(4, 3, 3, 3), random(4)),
        [("float32", (2, 3, 8, 8)), ("float32", (4, 3, 3, 3))],
    ),
    # transformers/cuda/attention.cu, flash_attn/flash_api.cpp mha_fwd:
    # log-sum-exps (B, H, S), seed and offset as 2 unsigned numbers, an unused one
    "flash attention": (
        lambda: attend(SDPBackend.FLASH_ATTENTION, BF16, is_causal=True),
        [("bfloat16", shape) for shape in QKV]
        + [("bfloat16", (B, H, S, D)), ("float32", (B, H, S)), ("uint64", ()), ("uint64", (2,))],
    ),
    # attention.cu _efficient_attention_forward: log-sum-exps padded to 32, seed and offset on the host
    "efficient attention": (
        lambda: attend(SDPBackend.EFFICIENT_ATTENTION, F32),
        [("float32", (B, H, S, D))] * 4
        + [("float32", (B, H, PADDED)), ("int64", (), "host"), ("int64", (), "host")],
    ),
    # attention.cu _cudnn_attention_forward: log-sum-exps (B, H, S, 1), seed and offset on the device
    "cuDNN attention": (
        lambda: attend(SDPBackend.CUDNN_ATTENTION, BF16),
        [("bfloat16", (B, H, S, D))] * 4 + [("float32", (B, H, S, 1)), ("int64", ()), ("int64", ())],
    ),
    # cuda/RNN.cu _thnn_fused_lstm_cell_cuda: the cell twice;
    # derivatives.yaml: the gates before and after
    "LSTM cell": (
        lambda: torch.ops.aten._thnn_fused_lstm_cell(random(5, 16), random(5, 16), random(5, 4), None, None),
        [("float32", (5, 4))] * 2 + [("float32", (5, 16))] * 3,
    ),
}


def mean():
    return torch.zeros(3, device="cuda")


def autocast(call):
    with torch.autocast("cuda", BF16):
        return call()


@pytest.mark.parametrize(("call", "expected"), ROWS.values(), ids=ROWS.keys())
def test_what_is_saved(call, expected):
    assert saved_by(call) == sorted(expected)


def meta_of(tensors):
    return [(t.dtype, tuple(t.shape), t.stride()) if isinstance(t, torch.Tensor) else t for t in tensors]


ATTENTION = {
    "flash": lambda q, k, v: torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, True),
    "efficient": lambda q, k, v: torch.ops.aten._scaled_dot_product_efficient_attention(q, k, v, None, True),
    "efficient, nothing saved": lambda q, k, v: torch.ops.aten._scaled_dot_product_efficient_attention(
        q, k, v, None, False
    ),
    "cuDNN": lambda q, k, v: torch.ops.aten._scaled_dot_product_cudnn_attention(q, k, v, None, True),
    "flash, inner": lambda q, k, v: torch.ops.aten._flash_attention_forward(
        *(t.transpose(1, 2) for t in (q, k, v)), None, None, S, S, 0.0, True, False
    ),
    "efficient, inner": lambda q, k, v: torch.ops.aten._efficient_attention_forward(
        *(t.transpose(1, 2) for t in (q, k, v)), None, None, None, None, None, 0.0, 1, True
    ),
}
LAYOUTS = {
    "heads inside": lambda: torch.randn(B, S, H, D).transpose(1, 2),
    "heads outside": lambda: torch.randn(B, H, S, D),
    "a slice": lambda: torch.randn(B, S, 3, H, D)[:, :, 0].transpose(1, 2),
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
@pytest.mark.parametrize("call", ATTENTION.values(), ids=ATTENTION.keys())
def test_attention_has_the_types_shapes_and_strides_that_pytorch_declares(call, layout):
    parts = [layout().bfloat16() for _ in range(3)]
    with torch.no_grad():
        there = call(*(t.cuda() for t in parts))
        declared = call(*(t.to("meta") for t in parts))
    assert meta_of(there) == meta_of(declared)


def test_recurrent_layers_run():
    layer = nn.LSTM(4, 8, 2).cuda()
    out, _ = layer(random(5, 3, 4))
    out.sum().backward()
    assert all(p.grad is not None for p in layer.parameters())
