# SPDX-License-Identifier: Apache-2.0
"""What a model in parts waits for, and what waits for it: copies, streams, memory."""

import contextlib
import gc

import spillway
import torch
from torch import nn

from cases import case
from cases.measure import Copied, same
from cases.parts import WIDTH, batch, layers


def statistics(model):
    return [b for b in model.buffers() if b.dim() > 0]


def statistics_of_the_plain_model():
    plain = layers(norm=True).cuda()
    plain(batch())
    return [b.cpu() for b in statistics(plain)]


@case
def a_state_that_is_taken_after_a_forward_pass_has_its_buffers():
    expected = statistics_of_the_plain_model()
    net = spillway.OffloadModel(layers(norm=True), "cuda")
    before = [b.clone() for b in statistics(net)]
    loss = net(batch()).sum()
    state = [value.clone() for name, value in net.state_dict().items() if "running" in name]
    assert same(state, expected) and not same(state, before)
    loss.backward()


@case
def buffers_are_right_when_a_pass_without_gradients_returns():
    expected = statistics_of_the_plain_model()
    net = spillway.OffloadModel(layers(norm=True), "cuda")
    before = [b.clone() for b in statistics(net)]
    with torch.no_grad():
        net(batch())
    found = [b.clone() for b in statistics(net)]
    assert same(found, expected) and not same(found, before)


@case
def with_recomputation_inputs_of_parts_wait_on_the_host():
    rows, parts = 4096, 8
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(parts)))
    net = spillway.OffloadModel(model, "cuda", num_slices=parts, checkpoint_activation=True)
    x = batch(rows=rows)
    for _ in range(2):
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        with Copied() as copied:
            loss = net(x).sum()
            torch.cuda.synchronize()
            spillway.step()  # memory whose copy has passed
            kept = torch.cuda.memory_allocated() - before
            loss.backward()
        # The first one's input is the caller's and stays there, wherever else it is.
        assert copied.out >= (parts - 1) * x.nbytes and copied.back >= (parts - 1) * x.nbytes, copied.out
    two = 2 * sum(p.nbytes for p in model[0].parameters())
    assert kept < two + 2 * x.nbytes, (kept / x.nbytes, two / x.nbytes)
    del loss


@case
def memory_of_a_part_that_is_freed_waits_for_the_streams_that_read_it():
    torch.manual_seed(2)
    model = nn.Sequential(*(nn.Linear(512, 512) for _ in range(3)))
    x = torch.ones(64, 512, device="cuda")
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    net = spillway.OffloadModel(model, "cuda", num_slices=3)
    torch.cuda.synchronize()
    with torch.no_grad():
        with torch.cuda.stream(first):
            net(x)
            expected = net(x)
        torch.cuda.synchronize()
        with torch.cuda.stream(second):
            found = net(x)
        del net
        gc.collect()
        with torch.cuda.stream(first):
            others = [torch.zeros(512 * 513, device="cuda") for _ in range(8)]
    torch.cuda.synchronize()
    assert same([found], [expected]) and all(other.count_nonzero() == 0 for other in others)


@case
def a_part_that_came_needlessly_is_not_read_after_the_pass():
    net = spillway.OffloadModel(layers(6), "cuda", num_slices=3)
    for parameter in net.model[:2].parameters():
        parameter.requires_grad_(False)
    net(batch()).sum().backward()
    with torch.no_grad():
        net.model[1][0].weight.mul_(2)  # the order checker sees who still reads it


@case
def passes_on_several_streams_have_the_plain_gradients():
    net, plain = spillway.OffloadModel(layers(), "cuda", num_slices=6), layers().cuda()
    streams = [torch.cuda.Stream() for _ in range(2)]
    inputs = [batch(seed) for seed in range(2)]
    torch.cuda.synchronize()
    for _ in range(2):
        losses = []
        for stream, x in zip(streams, inputs, strict=True):
            with torch.cuda.stream(stream):
                losses.append(net(x).square().sum())
        for loss in losses:
            loss.backward()
    torch.cuda.synchronize()
    for _ in range(2):
        for x in inputs:
            plain(x).square().sum().backward()
    assert same([p.grad for p in net.parameters()], [p.grad for p in plain.parameters()])


@case
def a_deleted_model_leaves_memory_that_a_copy_still_fills():
    class Fails(nn.Module):
        def forward(self, x):
            raise KeyError("mine")

    for _ in range(3):
        net = spillway.OffloadModel(nn.Sequential(Fails(), nn.Linear(1024, 1024)), "cuda", num_slices=2)
        with contextlib.suppress(KeyError):
            net(batch())  # the second part is on its way
        del net
        gc.collect()
        others = [torch.zeros(1024, 1024, device="cuda") for _ in range(4)]
        assert all(other.count_nonzero() == 0 for other in others)
