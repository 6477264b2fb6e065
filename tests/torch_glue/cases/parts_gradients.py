# SPDX-License-Identifier: Apache-2.0
"""Gradients of models whose parts take turns on the device."""

import copy
import threading

import spillway
import torch
from torch import nn

from cases import case
from cases.measure import gradients_of_gradients, same
from cases.parts import WIDTH, batch, layers


@case
def gradients_add_up_over_backward_passes():
    plain, net = layers().cuda(), spillway.OffloadModel(layers(), "cuda")
    for one in (plain, net):
        for seed in range(3):
            one(batch(seed)).square().sum().backward()
    assert same([p.grad for p in net.parameters()], [p.grad for p in plain.parameters()])


@case
def two_forward_passes_may_come_before_their_backward_passes():
    plain, net = layers().cuda(), spillway.OffloadModel(layers(), "cuda")
    grads = []
    for one in (plain, net):
        first, second = one(batch(1)).square().sum(), one(batch(2)).square().sum()
        first.backward()
        second.backward()
        grads.append([p.grad for p in one.parameters()])
    assert same(*grads)


@case
def retained_graphs_run_again_in_any_order():
    grads = []
    plain, net = layers().cuda(), spillway.OffloadModel(layers(), "cuda", num_slices=6)
    for one in (plain, net):
        inputs = [batch(seed).requires_grad_() for seed in range(3)]
        losses = [one(x).square().sum() for x in inputs]
        for number in (2, 0, 1, 0, 2, 2):
            losses[number].backward(retain_graph=True)
        grads.append([*(x.grad for x in inputs), *(p.grad for p in one.parameters())])
    assert same(*grads)


@case
def gradients_of_gradients_find_the_weights_that_they_hold():
    net = spillway.OffloadModel(layers(), "cuda", num_slices=6)
    found = gradients_of_gradients(net, batch().requires_grad_())
    assert same(found, gradients_of_gradients(layers().cuda(), batch().requires_grad_()))


@case
def a_backward_pass_that_fails_leaves_nothing_for_the_next_one():
    net, plain = spillway.OffloadModel(layers(), "cuda"), layers().cuda()

    def fail(grad):
        raise KeyError("mine")

    x = batch().requires_grad_()
    y = x * 1
    y.register_hook(fail)
    try:
        net(y).square().sum().backward()
        raise AssertionError("it was to raise")
    except KeyError:
        net.zero_grad()
    for one in (net, plain):
        one(batch()).square().sum().backward()
    assert same([p.grad for p in net.parameters()], [p.grad for p in plain.parameters()])


@case
def backward_passes_of_several_threads_lose_no_gradient():
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(4)))
    plain = copy.deepcopy(model).cuda()
    outputs, threads = [], []
    handle = model[1].register_forward_hook(lambda module, inputs, output: outputs.append(output))
    net = spillway.OffloadModel(model, "cuda", num_slices=4)
    first = net(batch(1)).sum()
    handle.remove()
    second = net(batch(1)).sum()

    def another_pass(grad):
        threads.append(threading.Thread(target=second.backward))
        threads[0].start()
        threads[0].join(0.3)  # it may have to wait for this one

    outputs[0].register_hook(another_pass)
    first.backward()
    threads[0].join()
    for _ in range(2):
        plain(batch(1)).sum().backward()
    assert same([p.grad for p in net.parameters()], [p.grad for p in plain.parameters()])


@case
def hooks_of_parameters_see_their_gradients_whenever_they_were_registered():
    def run(make):
        model, seen = layers(), ([], [], [])
        model[0][0].weight.register_hook(lambda grad: grad * 2)
        model[1][0].weight.register_post_accumulate_grad_hook(lambda p: seen[0].append(p.grad.clone()))
        net = make(model)
        model[4][0].weight.register_hook(lambda grad: seen[1].append(grad.clone()))
        model[5][0].weight.register_post_accumulate_grad_hook(lambda p: seen[2].append(p.grad.clone()))
        for _ in range(2):
            net(batch()).square().sum().backward()
        return [*seen[0], *seen[1], *seen[2], *(p.grad for p in model.parameters())]

    assert same(run(lambda model: spillway.OffloadModel(model, "cuda")), run(lambda model: model.cuda()))


@case
def an_optimizer_may_step_as_gradients_come_up():
    def run(model, net):
        optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}

        def step(p):
            optimizers[p].step()
            optimizers[p].zero_grad()

        hooks = [p.register_post_accumulate_grad_hook(step) for p in model.parameters()]
        for seed in range(3):
            net(batch(seed)).square().sum().backward()
        for hook in hooks:
            hook.remove()
        return model.parameters()

    plain, model = layers().cuda(), layers()
    assert same(run(model, spillway.OffloadModel(model, "cuda")), run(plain, plain))


@case
def only_the_parameters_that_are_asked_for_get_gradients():
    plain, net = layers().cuda(), spillway.OffloadModel(layers(), "cuda")
    for one in (plain, net):
        weights = [p for p in one.parameters() if p.dim() == 2][::2]
        one(batch()).square().sum().backward(inputs=weights)
        assert [p.grad is not None for p in one.parameters()] == [
            any(p is w for w in weights) for p in one.parameters()
        ]
    given = [[p.grad for p in one.parameters() if p.grad is not None] for one in (plain, net)]
    asked = torch.autograd.grad(net(batch()).square().sum(), list(net.parameters()))
    assert same(*given)
    assert same([g for g, p in zip(asked, net.parameters(), strict=True) if p.grad is not None], given[0])


@case
def a_gradient_is_added_to_the_tensor_that_is_there():
    net, plain = spillway.OffloadModel(layers(), "cuda"), layers().cuda()
    for one in (net, plain):
        mine = [torch.ones_like(p) for p in one.parameters()]
        for p, grad in zip(one.parameters(), mine, strict=True):
            p.grad = grad
        one(batch(1)).square().sum().backward()
        assert all(p.grad is grad for p, grad in zip(one.parameters(), mine, strict=True))
        first = next(iter(one.parameters()))
        first.grad = None
        one(batch(2)).square().sum().backward()
    assert same([p.grad for p in net.parameters()], [p.grad for p in plain.parameters()])


@case
def a_gradient_that_others_have_too_is_not_changed_while_it_leaves():
    class Shift(nn.Module):
        def __init__(self):
            super().__init__()
            self.by = nn.Parameter(torch.ones(10, WIDTH))

        def forward(self, x):
            # The sum's backward gives one tensor to both, and autograd adds to it what comes by the sine.
            y = x * 1
            return y.sin().cos() + (y + self.by)

    def run(net, shifts):
        x = batch().requires_grad_()
        net(x).square().sum().backward()
        return [x.grad, *(p.grad for p in shifts.parameters())]

    plain = nn.Sequential(Shift(), Shift())
    model = copy.deepcopy(plain)
    net = spillway.OffloadModel(model, "cuda", num_slices=2)
    assert same(run(net, model), run(plain.cuda(), plain))


@case
def gradients_of_parameters_may_have_a_graph_or_be_sparse():
    def run(model, net, x):
        grads = torch.autograd.grad(net(x).square().sum(), list(model.parameters()), create_graph=True)
        sum(grad.square().sum() for grad in grads).backward()
        return [*(grad.detach() for grad in grads), *(p.grad for p in model.parameters())]

    torch.manual_seed(1)
    plain = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))
    model = copy.deepcopy(plain)
    found = run(model, spillway.OffloadModel(model, "cuda"), batch())
    expected = run(plain.cuda(), plain, batch())
    assert same(found, expected)

    table = nn.Embedding(20, WIDTH, sparse=True)
    grads = []
    for one in (copy.deepcopy(table).cuda(), spillway.OffloadModel([copy.deepcopy(table)], "cuda")):
        one(torch.arange(7, device="cuda")).square().sum().backward()
        grads.append(next(one.parameters()).grad)
    assert grads[1].is_sparse and same([grads[1].to_dense()], [grads[0].to_dense()])
