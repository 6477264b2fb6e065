# SPDX-License-Identifier: Apache-2.0
"""Operators that PyTorch has on CUDA only, against the same formula in operators of the CPU, bit for bit."""

import pytest
import torch
import torch.nn.functional as F
from emulated_models import fingerprint


def random(*shape, seed=1, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def same(there, here):
    assert all(t.is_cuda for t in there)
    assert [(t.shape, t.dtype) for t in there] == [(t.shape, t.dtype) for t in here]
    assert fingerprint(there) == fingerprint(here)


def cuda(*tensors):
    return [t.cuda() for t in tensors]


def test_dropout_by_its_old_name_keeps_and_scales():
    x = random(1000).cuda()
    kept, mask = torch._fused_dropout(x, 0.75)
    assert mask.dtype is torch.uint8
    assert 0 < mask.sum().item() < 1000
    assert torch.equal(kept, x * mask * (1 / 0.75))
    assert torch.equal(torch._masked_scale(x, mask, 2.0), x * mask * 2)


def test_depthwise_convolutions():
    x, w = random(2, 4, 8, 8), random(4, 1, 3, 3, seed=2)
    there = torch.ops.aten._conv_depthwise2d(*cuda(x, w), [3, 3], None, [2, 2], [1, 1], [1, 1])
    same([there], [F.conv2d(x, w, None, 2, 1, groups=4)])
    x, w, b = random(1, 2, 5, 5, 5), random(4, 1, 3, 3, 3, seed=2), random(4, seed=3)
    x3, w3, b3 = cuda(x, w, b)
    there = torch.ops.aten.conv_depthwise3d(x3, w3, [3] * 3, b3, [1] * 3, [0] * 3, [1] * 3)
    same([there], [F.conv3d(x, w, b, groups=2)])


def test_cudnn_convolutions_by_name():
    x, w, b, z = random(2, 4, 9, 9), random(6, 2, 3, 3, seed=2), random(6, seed=3), random(2, 6, 5, 5, seed=4)
    xc, wc, bc, zc = cuda(x, w, b, z)
    plain = F.conv2d(x, w, None, 2, 1, 1, 2)
    there = torch.cudnn_convolution(xc, wc, [1, 1], [2, 2], [1, 1], 2, False, False, False)
    same([there], [plain])
    out = torch.empty(0, device="cuda")
    torch.cudnn_convolution(xc, wc, [1, 1], [2, 2], [1, 1], 2, False, False, False, out=out)
    same([out], [plain])
    same(
        [torch.cudnn_convolution_relu(xc, wc, bc, [2, 2], [1, 1], [1, 1], 2)],
        [F.conv2d(x, w, b, 2, 1, 1, 2).relu()],
    )
    there = torch.cudnn_convolution_add_relu(xc, wc, zc, 0.5, bc, [2, 2], [1, 1], [1, 1], 2)
    same([there], [(F.conv2d(x, w, b, 2, 1, 1, 2) + 0.5 * z).relu()])
    w = random(4, 3, 3, 3, seed=5)
    there = torch.cudnn_convolution_transpose(
        xc, w.cuda(), [1, 1], [1, 1], [2, 2], [1, 1], 2, False, False, False
    )
    same([there], [F.conv_transpose2d(x, w, None, 2, 1, 1, 2)])


def test_cudnn_batch_norm_by_name():
    x, w, b = random(4, 3, 5, 5), random(3, seed=2), random(3, seed=3)
    means, variances = [torch.zeros(3), torch.zeros(3).cuda()], [torch.ones(3), torch.ones(3).cuda()]
    here = torch.native_batch_norm(x, w, b, means[0], variances[0], True, 0.1, 1e-5)
    *there, reserve = torch.ops.aten.cudnn_batch_norm(*cuda(x, w, b), means[1], variances[1], True, 0.1, 1e-5)
    same(there, here)
    same([means[1], variances[1]], [means[0], variances[0]])
    assert reserve.dtype is torch.uint8


def test_cudnn_samplers_by_name():
    x, grid = random(2, 3, 6, 6), random(2, 4, 4, 2, seed=2)
    same([torch.ops.aten.cudnn_grid_sampler(*cuda(x, grid))], [F.grid_sample(x, grid, align_corners=True)])
    theta = random(2, 2, 3)
    there = torch.ops.aten.cudnn_affine_grid_generator(theta.cuda(), 2, 3, 4, 5)
    same([there], [F.affine_grid(theta, [2, 3, 4, 5], align_corners=True)])


def statistics(x, eps=1e-5):
    wide = x.float().transpose(0, 1).flatten(1)
    variance, mean = torch.var_mean(wide, 1, correction=0)
    return mean, (variance + eps).rsqrt()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_batch_norm_in_steps(dtype):
    x = random(4, 3, 5, dtype=dtype)
    w, b = random(3, seed=2), random(3, seed=3)
    mean, invstd = statistics(x)
    same(torch.batch_norm_stats(x.cuda(), 1e-5), [mean, invstd])
    row = [t[None, :, None] for t in (mean, invstd, w, b)]
    expected = ((x.float() - row[0]) * row[1] * row[2] + row[3]).to(dtype)
    same([torch.batch_norm_elemt(*cuda(x, w, b, mean, invstd), 1e-5)], [expected])


def test_statistics_of_several_processes_join():
    x = random(8, 3, 5)
    halves = [statistics(part) for part in (x[:2], x[2:])]
    means, invstds = (torch.stack(t).cuda() for t in zip(*halves, strict=True))
    counts = torch.tensor([10.0, 30.0], device="cuda")
    running = [torch.zeros(3, device="cuda"), torch.ones(3, device="cuda")]
    mean, invstd = torch.batch_norm_gather_stats_with_counts(
        x.cuda(), means, invstds, *running, 0.1, 1e-5, counts
    )
    whole = statistics(x)
    torch.testing.assert_close(mean.cpu(), whole[0])
    torch.testing.assert_close(invstd.cpu(), whole[1])
    torch.testing.assert_close(running[0].cpu(), 0.1 * whole[0])
    variance = x.transpose(0, 1).flatten(1).var(1)
    torch.testing.assert_close(running[1].cpu(), 0.9 + 0.1 * variance)


def test_gradients_of_batch_norm_in_steps():
    x, grad = random(4, 3, 5), random(4, 3, 5, seed=2)
    w = random(3, seed=3)
    mean, invstd = statistics(x)
    wide = torch.batch_norm_backward_reduce(*cuda(grad, x, mean, invstd, w), True, True, True)
    centered = x - mean[None, :, None]
    sums = [grad.sum((0, 2)), (grad * centered).sum((0, 2))]
    same(wide, [*sums, sums[1] * invstd, sums[0]])
    count = torch.tensor([12, 8], dtype=torch.int32)
    there = torch.batch_norm_backward_elemt(*cuda(grad, x, mean, invstd, w), *wide[:2], count.cuda())
    slope, scale = sums[1] / 20 * invstd.square(), invstd * w
    expected = (grad - (sums[0] / 20)[None, :, None] - centered * slope[None, :, None]) * scale[None, :, None]
    same([there], [expected])


FLOAT8 = torch.float8_e4m3fn


def test_softmax_from_half_to_single_precision():
    for function in (F.softmax, F.log_softmax):
        x = random(8, 48, dtype=torch.half)
        there, here = x.cuda().requires_grad_(), x.float().requires_grad_()
        results = function(there, -1, dtype=torch.float32), function(here, -1)
        same([results[0]], [results[1]])
        gradient = random(8, 48, seed=3)
        for result, given in zip(results, (gradient.cuda(), gradient), strict=True):
            result.backward(given)
        same([there.grad], [here.grad.half()])


def test_histogram_of_integers():
    whole = torch.arange(1000) % 7
    for dtype in (torch.int32, torch.int64):
        counted = torch.histc(whole.to("cuda", dtype), bins=4, min=0, max=3)
        assert counted.dtype == dtype
        assert counted.tolist() == [143, 143, 143, 143]


def factors(rows, width, columns):
    return random(rows, width, dtype=FLOAT8), random(columns, width, seed=2, dtype=FLOAT8)


def positive(*shape, seed):
    return random(*shape, seed=seed).abs() + 0.1


def test_scales_by_tensor():
    a, b = factors(16, 32, 48)
    scales = torch.tensor(0.5), torch.tensor(3.0)
    there = torch._scaled_mm(a.cuda(), b.cuda().t(), *cuda(*scales), out_dtype=torch.bfloat16)
    same([there], [torch._scaled_mm(a, b.t(), *scales, out_dtype=torch.bfloat16)])


def test_scales_by_row():
    a, b = factors(16, 32, 48)
    scale_a, scale_b, bias = (
        positive(16, 1, seed=3),
        positive(1, 48, seed=4),
        random(48, dtype=torch.bfloat16),
    )
    expected = (torch.mm(a.float() * scale_a, (b.float() * scale_b.t()).t()) + bias.float()).bfloat16()
    there = torch._scaled_mm(
        a.cuda(), b.cuda().t(), *cuda(scale_a, scale_b), bias=bias.cuda(), out_dtype=torch.bfloat16
    )
    same([there], [expected])
    there = torch._scaled_mm_v2(
        a.cuda(), b.cuda().t(), cuda(scale_a), [1], [0], cuda(scale_b), [1], [0], bias.cuda(), torch.bfloat16
    )
    same([there], [expected])


def spread(scale, rows, columns):
    return scale.repeat_interleave(rows, 0).repeat_interleave(columns, 1)


def test_scales_by_blocks():
    a, b = factors(256, 256, 128)
    scale_a, scale_b = positive(2, 256, seed=3).t(), positive(2, 1, seed=4)
    wide = [a.float() * spread(scale_a, 1, 128), b.float() * spread(scale_b.t(), 128, 128)]
    expected = torch.mm(wide[0], wide[1].t()).bfloat16()
    there = torch._scaled_mm(a.cuda(), b.cuda().t(), *cuda(scale_a, scale_b), out_dtype=torch.bfloat16)
    same([there], [expected])
    padded = F.pad(scale_b, (0, 0, 0, 2)).cuda()
    there = torch._scaled_mm_v2(
        a.cuda(), b.cuda().t(), cuda(scale_a), [4], [0], [padded], [5], [0], None, torch.bfloat16
    )
    same([there], [expected])


def swizzle(scales):
    """Rows of 4 scales as the tensor cores read them: 128 rows in 32 groups of 4."""
    rows, columns = scales.shape
    tiles = scales.view(rows // 128, 4, 32, columns // 4, 4)
    return tiles.permute(0, 3, 2, 1, 4).contiguous().flatten()


def test_swizzled_scales_of_blocks_of_32():
    a, b = factors(128, 128, 256)
    scales = [torch.exp2(random(n, 4, seed=n).round()) for n in (128, 256)]
    expected = torch.mm(a.float() * spread(scales[0], 1, 32), (b.float() * spread(scales[1], 1, 32)).t())
    there = torch._scaled_mm(
        a.cuda(),
        b.cuda().t(),
        *(swizzle(s).to(torch.float8_e8m0fnu).cuda() for s in scales),
        out_dtype=torch.bfloat16,
    )
    same([there], [expected.bfloat16()])


def test_other_scales_are_refused():
    a, b = factors(16, 32, 48)
    with pytest.raises(NotImplementedError, match="Multiply the scales out"):
        torch._scaled_mm(a.cuda(), b.cuda().t(), torch.ones(7, 3).cuda(), torch.ones(3, 48).cuda())


def test_grouped_products():
    a, b = random(24, 32, dtype=FLOAT8), random(2, 16, 32, seed=2, dtype=FLOAT8)
    scale_a, scale_b = positive(24, seed=3), positive(2, 16, seed=4)
    ends = torch.tensor([8, 24], dtype=torch.int32)
    wide = a.float() * scale_a[:, None], b.float() * scale_b[:, :, None]
    expected = torch.cat([wide[0][:8] @ wide[1][0].t(), wide[0][8:] @ wide[1][1].t()]).bfloat16()
    there = torch._scaled_grouped_mm(
        a.cuda(), b.cuda().transpose(1, 2), *cuda(scale_a, scale_b), ends.cuda(), out_dtype=torch.bfloat16
    )
    same([there], [expected])
    x, y = random(24, 32, dtype=torch.bfloat16), random(2, 32, 16, seed=2, dtype=torch.bfloat16)
    same([torch._grouped_mm(*cuda(x, y, ends))], [torch._grouped_mm(x, y, ends)])
