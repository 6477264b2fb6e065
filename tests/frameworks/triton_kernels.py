# SPDX-License-Identifier: Apache-2.0
"""Kernels as programs write them."""

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice
from triton.language.extra.cuda.libdevice import rsqrt


@triton.jit
def plus(a, b):
    return a + b


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    tl.store(out + at, plus(tl.load(x + at, mask=mask), tl.load(y + at, mask=mask)), mask=mask)


def add(x, y):
    out = torch.empty_like(x)
    add_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, out, x.numel(), BLOCK=256)
    return out


@triton.autotune(
    [triton.Config({"BLOCK": size}, num_warps=4) for size in (64, 128, 256)],
    key=["n"],
    reset_to_zero=["total"],
)
@triton.heuristics({"EVEN": lambda given: given["n"] % given["BLOCK"] == 0})
@triton.jit
def scale_kernel(x, out, total, n, factor, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        value = tl.load(x + at) * factor
        tl.store(out + at, value)
    else:
        value = tl.load(x + at, mask=at < n, other=0.0) * factor
        tl.store(out + at, value, mask=at < n)
    tl.atomic_add(total, tl.sum(value, 0))


def scale(x, factor):
    out, total = torch.empty_like(x), torch.full((1,), 7.0, device=x.device)
    scale_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, total, x.numel(), factor)
    return out, total


@triton.jit
def norm_kernel(x, weight, out, width, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.program_id(0) * width
    value = tl.load(x + row + at, mask=at < width, other=0.0).to(tl.float32)
    scaled = value * rsqrt(tl.sum(value * value, axis=0) / width + 1e-6)
    scaled = libdevice.tanh(scaled) * tl.load(weight + at, mask=at < width, other=0.0)
    tl.store(out + row + at, scaled, mask=at < width)


@triton.jit
def norm_backward_kernel(x, weight, grad, out, width, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.program_id(0) * width
    value = tl.load(x + row + at, mask=at < width, other=0.0).to(tl.float32)
    r = rsqrt(tl.sum(value * value, axis=0) / width + 1e-6)
    t = libdevice.tanh(value * r)
    inner = tl.load(grad + row + at, mask=at < width, other=0.0).to(tl.float32)
    inner *= tl.load(weight + at, mask=at < width, other=0.0) * (1 - t * t)
    mean = tl.sum(inner * value, axis=0) / width
    tl.store(out + row + at, r * inner - r * r * r * mean * value, mask=at < width)


class Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        out = torch.empty_like(x)
        block = triton.next_power_of_2(x.shape[-1])
        norm_kernel[(x.shape[0],)](x, weight, out, x.shape[-1], BLOCK=block, num_warps=4)
        ctx.save_for_backward(x, weight)
        return out

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        out = torch.empty_like(x)
        block = triton.next_power_of_2(x.shape[-1])
        norm_backward_kernel[(x.shape[0],)](x, weight, grad.contiguous(), out, x.shape[-1], BLOCK=block)
        return out, None


def norm_by_torch(x, weight):
    wide = x.float()
    return (torch.tanh(wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)) * weight).to(x.dtype)


@triton.jit
def product_kernel(a, b, out, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, PART: tl.constexpr):
    rows, columns, inner = tl.arange(0, M), tl.arange(0, N), tl.arange(0, PART)
    total = tl.zeros((M, N), dtype=tl.float32)
    for start in range(0, K, PART):
        left = tl.load(a + rows[:, None] * K + (start + inner)[None, :])
        right = tl.load(b + (start + inner)[:, None] * N + columns[None, :])
        total = tl.dot(left, right, total)
    tl.store(out + rows[:, None] * N + columns[None, :], total.to(out.dtype.element_ty))


def product(a, b):
    out = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
    product_kernel[(1,)](a, b, out, a.shape[0], b.shape[1], a.shape[1], PART=16)
    return out


@triton.jit
def narrow_kernel(x, y, out, sums, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    a, b = tl.load(x + at, mask=at < n, other=0.0), tl.load(y + at, mask=at < n, other=0.0)
    tl.store(out + at, a * b + a - tl.maximum(a, b), mask=at < n)
    tl.store(sums, tl.max(a, 0))
    tl.store(sums + 1, tl.sum(tl.where(a > b, a, b).to(tl.float32), 0))


@triton.jit
def convert_kernel(x, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at))


def convert(x, kind):
    out = torch.empty(x.numel(), dtype=kind, device=x.device)
    convert_kernel[(1,)](x, out, BLOCK=x.numel())
    return out


@triton.jit
def assembly_kernel(x, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value = tl.inline_asm_elementwise(
        "add.s32 $0, $1, 1;", "=r,r", [tl.load(x + at)], dtype=tl.int32, is_pure=True, pack=1
    )
    tl.store(out + at, value)


@torch.library.triton_op("spillway_tests::add", mutates_args={})
def add_op(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    torch.library.wrap_triton(add_kernel)[(triton.cdiv(x.numel(), 256),)](x, y, out, x.numel(), BLOCK=256)
    return out


@triton.jit
def rows_kernel(x, out, rows, width, factor, offset, BLOCK: tl.constexpr):
    factor = factor.to(tl.float32)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        x_row, out_row = x + row.to(tl.int64) * width, out + (row + 0).to(tl.int64) * width
        for start in tl.range(0, width, BLOCK):
            at = start.to(tl.int64) + tl.arange(0, BLOCK)
            value = tl.load(x_row + at, mask=at < width, other=0.0)
            tl.store(out_row + at, value * factor + offset, mask=at < width)


def by_rows(x, factor, offset):
    out = torch.empty_like(x)
    rows_kernel[(2,)](x, out, x.shape[0], x.shape[1], factor, offset, BLOCK=16)
    return out
