# SPDX-License-Identifier: Apache-2.0
"""Operators that are repeated with their arguments give the bits of the first time."""

import contextlib
import functools

import spillway
import torch
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from cases import case, case_of
from cases.beside_plain import keeping, left, random
from cases.measure import last, same

INDEX = torch.arange(48).flip(0)
MASK = torch.arange(48) % 3 == 0
ENDS = torch.tensor([48, 48, 320, 768], dtype=torch.int32)


def attention(backend, share=0.0, causal=False):
    def call(x, w):
        q, k, v = x.bfloat16().view(2, 3, 2, 64, 16).unbind(1)
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(q, k, v, dropout_p=share, is_causal=causal)

    return call


def autocast(function):
    def call(x, w):
        with torch.autocast("cuda", torch.bfloat16):
            return function(x, w)

    return call


def images(x):
    return x.view(4, 3, 32, 32)


def volumes(x):
    return x.view(2, 3, 8, 16, 16)


def filters(w, *shape):
    return w.flatten()[: torch.Size(shape).numel()].view(shape)


def recurrent(operator, gates, states):
    """A layer of width 16, or its cell."""

    def call(x, w):
        inputs = x.view(3, 256, 16) if "cell" not in operator.__name__ else x.view(768, 16)
        zeros = torch.zeros(1, 256, 16, device="cuda")
        hidden = [zeros if inputs.dim() == 3 else inputs] * states
        flat, sizes = w.flatten(), [(16 * gates, 16)] * 2 + [(16 * gates,)] * 2
        weights = [flat[n * 1024 :][: torch.Size(size).numel()].view(size) for n, size in enumerate(sizes)]
        given = hidden if states > 1 else hidden[0]
        if inputs.dim() == 2:
            result = operator(inputs, given, *weights)
        else:
            result = operator(inputs, given, weights, True, 1, 0.0, True, False, False)
        return result[0] if isinstance(result, tuple) else result

    return call


# x has 12288 elements, w 4096. Nothing but casts and the last result can be recomputed.
EXPENSIVE = {
    "conv1d": lambda x, w: F.conv1d(x.view(4, 6, 512), filters(w, 8, 6, 3), w[0, :8], padding=1),
    "conv2d": lambda x, w: F.conv2d(images(x), filters(w, 8, 3, 3, 3), w[0, :8], stride=2, padding=1),
    "conv2d_without_bias": lambda x, w: F.conv2d(images(x), filters(w, 8, 3, 3, 3)),
    "conv2d_channels_last": lambda x, w: F.conv2d(
        images(x).to(memory_format=torch.channels_last), filters(w, 8, 3, 3, 3), padding=1
    ),
    "conv2d_autocast": autocast(lambda x, w: F.conv2d(images(x), filters(w, 8, 3, 3, 3), w[0, :8])),
    "conv2d_grouped": lambda x, w: F.conv2d(images(x), filters(w, 6, 1, 3, 3), groups=3, dilation=2),
    "conv2d_transposed": lambda x, w: F.conv_transpose2d(
        images(x), filters(w, 3, 4, 3, 3), w[0, :4], stride=2, output_padding=1
    ),
    "conv3d": lambda x, w: F.conv3d(volumes(x), filters(w, 4, 3, 3, 3, 3), w[0, :4]),
    "bmm": lambda x, w: torch.bmm(x.view(3, 64, 64), w.expand(3, 64, 64)),
    "baddbmm": lambda x, w: torch.baddbmm(w[0], x.view(3, 64, 64), w.expand(3, 64, 64), beta=0.5, alpha=2),
    "einsum": lambda x, w: torch.einsum("bij,jk->bik", x.view(3, 64, 64), w),
    "grouped_product": lambda x, w: F.grouped_mm(
        x.bfloat16().view(768, 16), w.bfloat16().view(4, 16, 64), offs=ENDS.cuda()
    ),
    "grouped_product_of_a_batch": lambda x, w: torch._grouped_mm(
        x.bfloat16().view(12, 64, 16), w.bfloat16().view(16, 256).expand(12, 16, 256)
    ),
    "flash": attention(SDPBackend.FLASH_ATTENTION),
    "flash_with_dropout": attention(SDPBackend.FLASH_ATTENTION, 0.3, causal=True),
    "efficient": attention(SDPBackend.EFFICIENT_ATTENTION),
    "efficient_with_dropout": attention(SDPBackend.EFFICIENT_ATTENTION, 0.3, causal=True),
    "math": attention(SDPBackend.MATH, 0.3),
    # On the emulated GPU these are composed of cells. cuDNN's are recomputed with a workspace of one size.
    "lstm": recurrent(torch.lstm, 4, 2),
    "gru": recurrent(torch.gru, 3, 1),
    "rnn": recurrent(torch.rnn_tanh, 1, 1),
}

CHEAP = {
    "avg_pool2d": lambda x, w: F.avg_pool2d(images(x), 3, 2, 1),
    "avg_pool3d": lambda x, w: F.avg_pool3d(volumes(x), 2),
    "adaptive_avg_pool2d": lambda x, w: F.adaptive_avg_pool2d(images(x), (24, 24)),
    "max_pool2d_index": lambda x, w: F.max_pool2d(images(x), 2),
    "max_pool3d": lambda x, w: F.max_pool3d(volumes(x), 2),
    "adaptive_max_pool2d": lambda x, w: F.adaptive_max_pool2d(images(x), (24, 24)),
    "nearest": lambda x, w: F.interpolate(images(x), scale_factor=2),
    "bilinear": lambda x, w: F.interpolate(images(x), scale_factor=2, mode="bilinear"),
    "bicubic": lambda x, w: F.interpolate(images(x), scale_factor=1.5, mode="bicubic"),
    "linear": lambda x, w: F.interpolate(x.view(4, 3, 1024), scale_factor=2, mode="linear"),
    "trilinear": lambda x, w: F.interpolate(volumes(x), scale_factor=2, mode="trilinear"),
    "grid_sample": lambda x, w: F.grid_sample(
        images(x), w[:, :32].reshape(4, 16, 16, 2), align_corners=False
    ),
    "embedding": lambda x, w: F.embedding(INDEX.cuda(), w),
    "cat": lambda x, w: torch.cat([x, w, x[:64]], 0),
    "stack": lambda x, w: torch.stack([x[:64], w], 1),
    "contiguous": lambda x, w: x.t().contiguous(),
    "pad": lambda x, w: F.pad(images(x), (1, 2, 0, 3), value=0.5),
    "reflection_pad": lambda x, w: F.pad(images(x), (1, 2, 3, 3), mode="reflect"),
    "replication_pad": lambda x, w: F.pad(images(x), (1, 2, 3, 3), mode="replicate"),
    "index": lambda x, w: x[INDEX.cuda()],
    "index_select": lambda x, w: x.index_select(0, INDEX.cuda()),
    "gather": lambda x, w: x.gather(0, INDEX.cuda().view(48, 1).expand(48, 64)),
    "masked_fill": lambda x, w: w[:48].masked_fill(MASK.cuda().view(48, 1), 0.5),
    "where": lambda x, w: torch.where(MASK.cuda().view(48, 1), w[:48], x[:48]),
    "roll": lambda x, w: x.roll((3, 5), (0, 1)),
    "flip": lambda x, w: x.flip(0),
    "triu": lambda x, w: x.triu(1),
    "repeat": lambda x, w: w.repeat(2, 3),
    "pixel_shuffle": lambda x, w: F.pixel_shuffle(x.view(4, 12, 16, 16), 2),
    "sum": lambda x, w: images(x).sum(1),
    "mean": lambda x, w: images(x).mean((1,)),
    "variance": lambda x, w: images(x).var(1),
    "amax": lambda x, w: images(x).amax(1),
    "max": lambda x, w: images(x).max(1).values,
    "logsumexp": lambda x, w: images(x).logsumexp(1),
    "norm": lambda x, w: images(x).norm(dim=1),
    "log_softmax": lambda x, w: x.log_softmax(-1),
    "cumsum": lambda x, w: x.cumsum(0),
    "cumprod": lambda x, w: x.cumprod(1),
    "exp": lambda x, w: x.exp(),
    "erf": lambda x, w: x.erf(),
    "clamp": lambda x, w: x.clamp(-0.5, 0.5),
    "maximum": lambda x, w: torch.maximum(x[:64], w),
    "lerp": lambda x, w: torch.lerp(x[:64], w, 0.3),
    "addcmul": lambda x, w: torch.addcmul(w, x[:64], w, value=0.3),
    "log_sigmoid": lambda x, w: F.logsigmoid(x),
    "softshrink": lambda x, w: F.softshrink(x),
    "lstm_cell": recurrent(torch.lstm_cell, 4, 2),
    "gru_cell": recurrent(torch.gru_cell, 3, 1),
    "prelu": lambda x, w: F.prelu(x, w[0, :1]),
}


def gradients(function, region, around=contextlib.nullcontext):
    """Of the inputs, and the loss, with the bytes of the function's result."""
    torch.manual_seed(7)
    x, w = random(192, 64).requires_grad_(), random(64, 64, seed=1).requires_grad_()
    factor = random(1, seed=9).requires_grad_()
    with region, around():
        result = function(x, w)
        size = result.nbytes
        loss = (result * factor).sum()  # the product saves the result
        del result
    torch.rand(1, device="cuda")
    loss.backward()
    return [loss.detach(), factor.grad, *(each.grad for each in (x, w) if each.grad is not None)], size


def check(function, region, tag, steps):
    expected, size = gradients(function, keeping())
    for _ in range(steps):
        actual, _ = gradients(function, region)
        assert same(expected, actual)
        step = last(tag)
        released, again = step["left_to_recompute_bytes"], step["recomputed_bytes"]
        assert again >= released >= size, (released, again, size)


def cheap_one_is_repeated(_, function):
    check(function, spillway.recompute(), "recompute", steps=2)


def expensive_one_is_repeated(name, function):
    # The first step lets everything go that it can; the others have room.
    check(function, spillway.offload(budget="1GiB", tag=f"repeated-{name}"), f"repeated-{name}", steps=1)
    spillway.step()


for claims, operators in ((cheap_one_is_repeated, CHEAP), (expensive_one_is_repeated, EXPENSIVE)):
    for name, operator in operators.items():
        case_of(f"{name}_is_repeated_bit_for_bit", claims, name, operator)


@case
def without_a_budget_convolutions_are_kept():
    gradients(EXPENSIVE["conv2d"], spillway.recompute())
    assert left() == (0, 0), left()


@case
def convolutions_whose_algorithm_is_benchmarked_are_kept():
    benchmarked = functools.partial(torch.backends.cudnn.flags, enabled=True, benchmark=True)
    gradients(EXPENSIVE["conv2d"], spillway.offload(budget="1GiB", tag="benchmarked"), benchmarked)
    assert last("benchmarked")["left_to_recompute_bytes"] == 0, last("benchmarked")
    spillway.step()


@case
def an_index_is_recomputed_with_its_maximum():
    _, size = gradients(CHEAP["max_pool2d_index"], spillway.recompute())
    assert left()[0] == size + 2 * size, left()  # the index has eight bytes for each four


@case
def a_workspace_is_recomputed_with_its_cell():
    _, size = gradients(CHEAP["gru_cell"], spillway.recompute())
    assert left()[0] == size + 5 * size, left()


@case
def the_generator_continues_where_it_was():
    def drawn(region):
        torch.manual_seed(3)
        gradients(EXPENSIVE["flash_with_dropout"], region)
        return torch.rand(4, device="cuda")

    expected = drawn(keeping())
    assert same([expected], [drawn(spillway.offload(budget="1GiB", tag="drawn"))])
    spillway.step()
