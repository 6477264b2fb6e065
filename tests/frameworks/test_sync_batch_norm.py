# SPDX-License-Identifier: Apache-2.0
"""SyncBatchNorm of two ranks: the bits of its formula on the CPU, and the mathematics of one whole batch."""

import os

import torch
import torch.distributed as dist
from torch import nn
from training import fingerprint

EPS, MOMENTUM, CHANNELS = 1e-5, 0.1, 3
SIZES = (2, 6)  # of the ranks' batches


def data(rank, seed):
    return torch.randn(SIZES[rank], CHANNELS, 4, generator=torch.Generator().manual_seed(10 * seed + rank))


def layer(kind):
    made = kind(CHANNELS, eps=EPS, momentum=MOMENTUM)
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        made.weight.copy_(torch.randn(CHANNELS, generator=generator))
        made.bias.copy_(torch.randn(CHANNELS, generator=generator))
    return made


def run_rank():
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo", init_method=os.environ["RENDEZVOUS"], rank=rank, world_size=2)
    torch.cuda.set_device(rank)
    norm = layer(nn.SyncBatchNorm).cuda()
    x = data(rank, 1).cuda().requires_grad_()
    out = norm(x)
    out.backward(data(rank, 2).cuda())
    dist.barrier()
    dist.destroy_process_group()
    return fingerprint([out, x.grad, norm.weight.grad, norm.bias.grad, norm.running_mean, norm.running_var])


def wide(numbers):
    return numbers[None, :, None]


def by_formula(rank):
    """What a rank gets, in CPU operators in the order of the CUDA kernels."""
    statistics, counts = [], []
    for other in range(2):
        x = data(other, 1)
        variance, mean = torch.var_mean(x.transpose(0, 1).flatten(1), 1, correction=0)
        statistics.append((mean, (variance + EPS).rsqrt()))
        counts.append(float(x.numel() // CHANNELS))
    mean, squares, n = torch.zeros(CHANNELS), torch.zeros(CHANNELS), 0.0
    for (own, invstd), count in zip(statistics, counts, strict=True):
        distance = mean - own
        squares = (
            squares
            + (invstd.reciprocal().square() - EPS) * count
            + distance.square() * (n * count / (n + count))
        )
        mean = mean * (n / (n + count)) + own * (count / (n + count))
        n += count
    invstd = (squares / n + EPS).rsqrt()
    norm = layer(nn.BatchNorm1d)
    weight, bias = norm.weight.detach(), norm.bias.detach()
    out = (data(rank, 1) - wide(mean)) * wide(invstd) * wide(weight) + wide(bias)
    sums, moments = [], []
    for other in range(2):
        grad = data(other, 2)
        sums.append(grad.sum((0, 2)))
        moments.append((grad * (data(other, 1) - wide(mean))).sum((0, 2)))
    slope = (moments[0] + moments[1]) / n * invstd.square()
    centered = data(rank, 1) - wide(mean)
    grad = data(rank, 2) - wide((sums[0] + sums[1]) / n) - centered * wide(slope)
    running = torch.zeros(CHANNELS) * (1 - MOMENTUM) + mean * MOMENTUM
    running_var = torch.ones(CHANNELS) * (1 - MOMENTUM) + squares / (n - 1) * MOMENTUM
    return [out, grad * wide(invstd * weight), moments[rank] * invstd, sums[rank], running, running_var]


def test_two_ranks_have_the_bits_of_the_formula(ranks):
    assert ranks(2, run_rank) == [fingerprint(by_formula(rank)) for rank in range(2)]


def test_the_formula_is_batch_norm_of_the_whole_batch():
    norm = layer(nn.BatchNorm1d)
    x = torch.cat([data(rank, 1) for rank in range(2)]).requires_grad_()
    out = norm(x)
    out.backward(torch.cat([data(rank, 2) for rank in range(2)]))
    parts = [by_formula(rank) for rank in range(2)]
    joined = [torch.cat([part[i] for part in parts]) for i in range(2)]
    joined += [parts[0][i] + parts[1][i] for i in (2, 3)]
    expected = [out, x.grad, norm.weight.grad, norm.bias.grad, norm.running_mean, norm.running_var]
    for got, whole in zip([*joined, *parts[0][4:]], expected, strict=True):
        torch.testing.assert_close(got, whole.detach())  # the same numbers in another order of sums
