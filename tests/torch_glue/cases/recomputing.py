# SPDX-License-Identifier: Apache-2.0
"""Tensors that are recomputed instead of kept: when, how often, and what is left behind."""

import threading

import spillway
import torch
from torch import nn
from torch.nn import functional as F

from cases import case
from cases.beside_plain import keeping, left, random
from cases.measure import gradients_of_gradients, last, same, same_bits


@case
def peak_memory_falls_by_what_is_recomputed():
    net = nn.Sequential(*[nn.Sequential(nn.Linear(256, 256), nn.SiLU()) for _ in range(8)]).cuda()
    x = random(512, 256)

    def peak(region):
        for _ in range(2):
            with region:
                loss = net(x).sum()
            held = torch.cuda.memory_allocated()
            loss.backward()
            net.zero_grad()
        return held

    difference = peak(keeping()) - peak(spillway.recompute())
    # The last result is in no graph but as that of sum, which saves nothing.
    assert difference == 7 * 512 * 256 * 4, difference


@case
def consumers_share_what_is_recomputed():
    x = random(64, 64).requires_grad_()
    weights = [random(64, 64, seed=i).requires_grad_() for i in range(3)]
    with spillway.recompute():
        y = F.silu(x)
        loss = sum((y @ w).sum() for w in weights)
        del y
    loss.backward()
    assert left() == (64 * 64 * 4, 64 * 64 * 4)


@case
def a_weight_pass_alone_works_after_a_shared_producer_was_released():
    def run(region):
        x, w = random(64, 64).requires_grad_(), random(64, 64, seed=1).requires_grad_()
        with region:
            y = F.silu(x)
            first, second = y.sum(), (y @ w).sum()
            del y
        first.backward()
        return [*torch.autograd.grad(second, [w]), x.grad]

    assert same(run(keeping()), run(spillway.recompute()))
    assert left()[1] > 0


@case
def code_that_keeps_a_result_is_given_it():
    x, w = random(64, 64).requires_grad_(), random(64, 64, seed=1).requires_grad_()
    with spillway.recompute():
        y = F.silu(x)
        loss = (y @ w).sum()
    loss.backward()
    assert left() == (64 * 64 * 4, 0)
    assert same_bits(w.grad, y.t() @ torch.ones(64, 64, device="cuda"))


@case
def retained_graphs_and_second_derivatives_are_the_same():
    def run(region):
        torch.manual_seed(3)
        net = nn.Sequential(
            nn.Linear(32, 32), nn.SiLU(), nn.LayerNorm(32), nn.Tanh(), nn.Linear(32, 4)
        ).cuda()
        x = random(16, 32).requires_grad_()
        with region:
            grads = gradients_of_gradients(net, x)
            loss = net(x).sum()
        loss.backward(retain_graph=True)
        loss.backward()
        return [*grads, *(p.grad for p in net.parameters())]

    assert same(run(keeping()), run(spillway.recompute()))


@case
def running_statistics_count_a_batch_once():
    def run(region):
        torch.manual_seed(3)
        net = nn.Sequential(nn.Conv2d(4, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3)).cuda()
        for seed in range(3):
            with region:
                loss = net(random(4, 4, 8, 8, seed=seed)).square().sum()
            loss.backward()
        return [*net.state_dict().values(), *(p.grad for p in net.parameters())]

    assert same(run(keeping()), run(spillway.recompute()))
    assert left()[1] > 0


@case
def random_numbers_go_on_as_if_none_had_been_drawn_again():
    def run(region):
        torch.manual_seed(3)
        x, w = random(64, 64).requires_grad_(), random(64, 64, seed=1).requires_grad_()
        drawn = []
        for _ in range(3):
            with region:
                y = F.dropout(F.silu(x @ w), 0.2)
                loss = (F.dropout(F.silu(y @ w), 0.2) @ w).square().sum()
                del y
            loss.backward()
            drawn.append(torch.rand(8, device="cuda"))
        return [*drawn, x.grad, w.grad]

    assert same(run(keeping()), run(spillway.recompute()))


@case
def what_cannot_be_recomputed_moves_as_the_region_around_states():
    def run(*regions):
        torch.manual_seed(3)
        net = nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.SiLU()) for _ in range(4)]).cuda()
        x = random(64, 64).requires_grad_()
        for _ in range(2):
            with regions[0], regions[1]:
                loss = net(x).square().sum()
            loss.backward()
        return [x.grad, *(p.grad for p in net.parameters())]

    plain = run(keeping(), keeping())
    for regions in (
        (spillway.CPUOffload(1, tag="moved"), spillway.recompute()),
        (spillway.recompute(), spillway.CPUOffload(1, tag="moved")),
    ):
        assert same(plain, run(*regions))
        step = last("moved")
        # What is fetched serves the operator that runs again and its own backward pass.
        assert step["fetched_bytes"] == step["offloaded_bytes"] > 0, step
        assert step["recomputed_bytes"] == step["left_to_recompute_bytes"] > 0, step


@case
def nothing_is_left_behind():
    x, w = random(64, 64).requires_grad_(), random(64, 64, seed=1).requires_grad_()

    def step(ends):
        with spillway.recompute():
            loss = (F.dropout(F.silu(x @ w), 0.2) @ w).square().sum()
        if ends:
            loss.backward()
            x.grad = w.grad = None

    step(True)
    before = torch.cuda.memory_allocated(), spillway.stats()["saved_tensor_handles"]
    for number in range(20):
        step(number % 2 == 0)
    spillway.step()
    assert (torch.cuda.memory_allocated(), spillway.stats()["saved_tensor_handles"]) == before


@case
def a_long_chain_keeps_every_fourth_tensor():
    x = random(64, 64).requires_grad_()
    with spillway.recompute():
        y = x
        for _ in range(12):
            y = F.silu(y)
        loss = y.square().sum()
        del y
    loss.backward()
    size = 64 * 64 * 4
    # The first SiLU saves x; of the twelve results three are kept, as is none of those between.
    assert left() == (9 * size, 9 * size), left()


@case
def operators_run_again_without_the_backward_passs_autocast():
    def run(region):
        x = random(64, 64, dtype=torch.bfloat16).requires_grad_()
        w = random(64, 64, dtype=torch.bfloat16, seed=1).requires_grad_()
        with region:
            loss = ((x * 1).pow(2) @ w).sum()
        with torch.autocast("cuda", torch.bfloat16):
            loss.backward()
        return [x.grad, w.grad]

    assert same(run(keeping()), run(spillway.recompute()))
    assert left()[1] > 0


@case
def two_streams_each_have_their_own():
    def run(region):
        x = random(256, 256).requires_grad_()
        weights = [random(256, 256, seed=i).requires_grad_() for i in (1, 2)]
        side = torch.cuda.Stream()
        with region:
            y = F.silu(x)
            first = (y @ weights[0]).sum()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                second = (y @ weights[1]).sum()
            torch.cuda.current_stream().wait_stream(side)
            y.record_stream(side)
            loss = first + second
            del y, first, second
        loss.backward()
        return [x.grad, *(w.grad for w in weights)]

    assert same(run(keeping()), run(spillway.recompute()))
    assert left() == (256 * 256 * 4, 2 * 256 * 256 * 4), left()


@case
def threads_may_want_the_same_result():
    x = random(64, 64).requires_grad_()
    weights = [random(64, 64, seed=i).requires_grad_() for i in range(4)]
    with spillway.recompute():
        y = F.silu(x)
        losses = [(y @ w).sum() for w in weights]
        expected = y.detach().t() @ torch.ones(64, 64, device="cuda")
        del y
    results = [None] * 4

    def work(index):
        (results[index],) = torch.autograd.grad(losses[index], [weights[index]], retain_graph=True)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert same([expected] * 4, results)


@case
def no_region_is_open_behind_an_exception():
    try:
        with spillway.recompute():
            raise KeyError("inside")
    except KeyError:
        pass
    x, w = random(64, 64).requires_grad_(), random(64, 64, seed=1).requires_grad_()
    y = F.silu(x)
    place = y.data_ptr()
    loss = (y @ w).sum()
    del y
    assert torch.empty_like(x).data_ptr() != place  # it is kept
    assert not torch._C._dispatch_tls_is_dispatch_key_included("TESTING_ONLY_GenericMode")
    del loss


@case
def what_was_remade_goes_when_all_have_had_it():
    x, w = random(64, 64).requires_grad_(), random(64, 64, seed=1).requires_grad_()
    with spillway.recompute():
        loss = (F.silu(x) @ w).sum()
    loss.backward(retain_graph=True)
    before = torch.cuda.memory_allocated()
    del loss
    assert before - torch.cuda.memory_allocated() < 64 * 64 * 4


@case
def what_is_many_operators_away_is_kept():
    def run(region):
        x, w = random(64, 64).requires_grad_(), random(64, 64, seed=1).requires_grad_()
        with region:
            inputs = [(0.1 * number * x).sort(0).values for number in range(7)]
            y = F.layer_norm(inputs[0], (64,))
            for each in inputs[1:]:
                y = y + F.layer_norm(each, (64,))
            loss = (F.relu(y) @ w).sum()
            del y, inputs, each
        return torch.autograd.grad(loss, [x, w])

    assert same(run(keeping()), run(spillway.recompute()))
    assert left() == (0, 0), left()


@case
def functions_are_mapped_as_without_the_region():
    x = random(2, 16, 4, 4)

    def norm(bias):
        return F.group_norm(x, 4, bias, bias)

    with spillway.recompute():
        mapped = torch.vmap(norm)(random(3, 16, seed=1))
    assert same([mapped], [torch.vmap(norm)(random(3, 16, seed=1))])

    def run(region):
        torch.manual_seed(3)
        x, w = random(64, 64).requires_grad_(), random(64, 64, seed=1).requires_grad_()
        with region:
            y = F.dropout(F.silu(x @ w), 0.2) @ w
        return torch.autograd.grad(y, [x, w], random(3, 64, 64, seed=2), is_grads_batched=True)

    assert same(run(keeping()), run(spillway.recompute()))
