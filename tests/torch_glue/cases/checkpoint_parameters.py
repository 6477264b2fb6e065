# SPDX-License-Identifier: Apache-2.0
"""A checkpoint that would recompute with other parameters raises, and no other one does."""

import functools

import spillway
import torch
from torch import nn

from cases import case, case_of
from cases.checkpoints import WIDTH, batch
from cases.measure import Copied, same


def layer():
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()).cuda()


def layers(count=2, wrap=True):
    torch.manual_seed(1)
    net = nn.Sequential(*(layer() for _ in range(count)))
    return nn.Sequential(*map(spillway.checkpoint_wrapper, net)) if wrap else net


def halves(net):
    return {name: (p.detach() * 0.5).requires_grad_() for name, p in net.named_parameters()}


def raises(loss):
    try:
        loss.backward()
    except RuntimeError as error:
        text = str(error)
        assert "[64, 64] on cuda:0" in text and "functional_call" in text, text
        return
    raise AssertionError("it was to raise")


def replaced(net, linear):
    linear.weight = nn.Parameter(linear.weight.detach() * 3)


def given_other_memory(net, linear):
    linear.weight.data = linear.weight.data * 3


def given_other_memory_twice(net, linear):
    # The second time at the address of the first memory, most likely.
    linear.weight.data = torch.empty(0, device="cuda")
    linear.weight.data = torch.ones(WIDTH, WIDTH, device="cuda")


def loaded_in_its_place(net, linear):
    net.load_state_dict({name: value * 2 for name, value in net.state_dict().items()}, assign=True)


def swapped(net, linear):
    other = net[0][0]
    linear.weight, other.weight = other.weight, linear.weight


for change in (replaced, given_other_memory, given_other_memory_twice, loaded_in_its_place, swapped):

    def is_noticed(change=change):
        for autocast in (False, True):
            net = layers()
            with torch.autocast("cuda", dtype=torch.bfloat16, enabled=autocast):
                loss = net(batch()).float().square().sum()
            change(net, net[1][0])
            raises(loss)
            assert all(p.grad is None for p in net.parameters())

    case_of(f"a_parameter_that_was_{change.__name__}_before_the_second_run_is_noticed", is_noticed)


@case
def parameters_that_a_functional_call_has_put_back_are_noticed():
    for offload in (False, True):
        net = layers(wrap=False)
        for one in net:
            spillway.checkpoint_wrapper(one, offload_to_cpu=offload)
        raises(torch.func.functional_call(net, halves(net), (batch(),)).square().sum())


@case
def parameters_that_a_function_finds_elsewhere_are_noticed():
    """Some operators before what is saved, of which none saves the parameter."""
    found = {name: torch.randn(WIDTH, WIDTH, device="cuda", requires_grad=True) for name in "ab"}

    def function(x):
        return (x @ (found["a"] + found["b"].t() * 2).to(torch.float64).float()).tanh()

    for name in "ab":
        loss = spillway.checkpoint(function, batch().requires_grad_()).sum()
        found[name] = torch.randn(WIDTH, WIDTH, device="cuda", requires_grad=True)
        raises(loss)


@case
def parameters_that_are_arguments_are_kept():
    def gradients(call):
        net = layers(wrap=False)
        given = halves(net)
        x = batch(rows=40) * 1
        for place, one in enumerate(net):
            mine = {n.removeprefix(f"{place}."): p for n, p in given.items() if n.startswith(f"{place}.")}
            x = call(torch.func.functional_call, one, mine, (x,))
        x.square().sum().backward()
        return [p.grad for p in given.values()]

    plain = gradients(lambda function, *arguments: function(*arguments))
    assert same(gradients(spillway.checkpoint), plain)
    with Copied() as copied:
        found = gradients(functools.partial(spillway.checkpoint, offload_to_cpu=True))
    assert same(found, plain) and copied.out > 0


class Counted(nn.Module):
    """Runs `function(self, x)` and counts how often."""

    def __init__(self, function):
        super().__init__()
        torch.manual_seed(1)
        self.function, self.runs = function, 0
        self.linear, self.norm = nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH)
        self.scale = nn.Parameter(torch.ones(WIDTH))
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        self.runs += 1
        return self.function(self, x)


def tied(net, x):
    return nn.functional.linear(nn.functional.linear(x, net.linear.weight).tanh(), net.linear.weight.t())


def edits_a_buffer(net, x):
    net.seen.add_(1)
    return net.norm(net.linear(x).tanh())


def replaces_a_buffer(net, x):
    net.seen = net.seen + 1
    return net.linear(x).tanh()


def computes_its_weight(net, x):
    return (x @ (net.linear.weight * net.scale)).tanh()


def takes_a_gradient(net, x):
    leaf = x.detach().requires_grad_()
    (grad,) = torch.autograd.grad(net.linear(leaf).pow(3).sum(), [leaf], create_graph=True)
    return grad * x


def keeps_a_leaf_that_it_makes(net, x):
    net.kept = x.detach().requires_grad_()
    return net.linear(x) * net.kept


def checkpoints_inside(net, x):
    return torch.utils.checkpoint.checkpoint(lambda x: net.linear(x).tanh(), x, use_reentrant=False) * x


def wraps_inside(net, x):
    return spillway.checkpoint(lambda x, w: nn.functional.linear(x, w).tanh(), x * 2, net.linear.weight) * x


def takes_functional_gradients(net, x):
    return torch.func.grad(lambda x: net.linear(x).pow(3).sum())(x) * x


def under_autocast(net, x):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        return net.linear(net.linear(x).tanh()).float()


# Runs in two calls. A gradient inside runs the function again at once. If a leaf is found that is not of the
# first run and is still referenced, one more run checks whether it is new each time.
RUNS = {takes_a_gradient: 6, keeps_a_leaf_that_it_makes: 6}

for function in (
    tied, edits_a_buffer, replaces_a_buffer, computes_its_weight, takes_a_gradient,
    keeps_a_leaf_that_it_makes, checkpoints_inside, wraps_inside, takes_functional_gradients, under_autocast,
):  # fmt: skip

    def is_right(function=function):
        def after(wrap):
            net = Counted(function).cuda()
            if wrap:
                spillway.checkpoint_wrapper(net)
            x = batch().requires_grad_()
            loss = net(x * 1).square().sum() + net(x * 2).square().sum()
            for parameter in net.norm.parameters():
                parameter.requires_grad_(False)  # is used no longer
            loss.backward()
            return [x.grad, *(p.grad for p in net.parameters())], net.runs

        (found, runs), (plain, _) = after(True), after(False)
        assert same(found, plain) and runs == RUNS.get(function, 4), runs

    claim = functools.partial(is_right)
    claim.__name__ = f"a_checkpoint_that_{function.__name__}_has_the_plain_gradients".replace(
        "that_tied", "with_tied_weights").replace("that_under", "that_runs_under")  # fmt: skip
    case(claim)


@case
def a_weight_that_is_an_argument_and_found_elsewhere_too_is_the_same():
    def gradient(call):
        weight = batch(rows=WIDTH).requires_grad_()
        x = batch().requires_grad_()
        call(lambda x, w: (x @ w).tanh() @ weight, x, weight).square().sum().backward()
        return [x.grad, weight.grad]

    assert same(gradient(spillway.checkpoint), gradient(lambda function, *arguments: function(*arguments)))


@case
def memory_that_a_library_gathers_again_may_be_elsewhere():
    """As parameters that are sharded until they are needed, which such a library marks."""
    net = layers()
    plain = torch.autograd.grad(net(batch()).sum(), list(net.parameters()))
    for parameter in net.parameters():
        parameter.ds_id = 0
    loss = net(batch()).sum()
    for parameter in net.parameters():
        parameter.data = parameter.data.clone()
    assert same(torch.autograd.grad(loss, list(net.parameters())), plain)
    loss = net(batch()).sum()
    replaced(net, net[1][0])
    raises(loss)
