# SPDX-License-Identifier: Apache-2.0
"""What a checkpointed function finds and leaves around it: random numbers, autocast, running statistics."""

import functools

import spillway
import torch
from torch import nn

from cases import case
from cases.checkpoints import WIDTH, batch, blocks, wrapped
from cases.measure import Copied, same

norms = {}  # a module may be found by a global name, too


@case
def random_numbers_outside_are_as_if_the_function_ran_once():
    def after(call):
        torch.manual_seed(4)
        x = batch().requires_grad_()
        y = call(lambda x: nn.functional.dropout(x.tanh(), 0.5), x)
        y.sum().backward()
        return [torch.rand(4), torch.rand(4, device="cuda"), x.grad]

    assert same(after(spillway.checkpoint), after(lambda function, x: function(x)))


@case
def random_numbers_may_differ_where_that_is_asked_for():
    seen = []

    def function(x):
        seen.append(torch.rand(4, device="cuda"))
        return x.tanh()

    spillway.checkpoint(function, batch().requires_grad_(), preserve_rng_state=False).sum().backward()
    spillway.checkpoint(function, batch().requires_grad_()).sum().backward()
    assert not torch.equal(seen[0], seen[1]) and torch.equal(seen[2], seen[3])


@case
def autocast_is_as_it_was_in_the_first_run():
    for dtype in (torch.bfloat16, torch.float16):

        def run(net, dtype=dtype):
            x = batch().requires_grad_()
            torch.manual_seed(9)
            with torch.autocast("cuda", dtype=dtype):
                y = net(x)
            y.float().sum().backward()  # outside
            return [x.grad, *(p.grad for p in net.parameters())]

        with Copied() as copied:
            found = run(wrapped(blocks(), offload_to_cpu=True))
        assert same(found, run(blocks())) and copied.out > 0, dtype


@case
def batch_norm_counts_once_however_often_it_is_wrapped():
    def make():
        torch.manual_seed(2)
        return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.ReLU()).cuda()

    runs = []

    def after(net):
        runs.clear()
        net.get_submodule("net.0" if hasattr(net, "net") else "0").register_forward_hook(
            lambda *_: runs.append(1)
        )
        for seed in range(3):
            x = batch(seed).requires_grad_()
            net(x * 1).square().sum().backward()
        return [*net.state_dict().values(), *(p.grad for p in net.parameters()), x.grad]

    plain = after(make())
    assert len(runs) == 3
    inner = make()
    spillway.checkpoint_wrapper(inner[1])
    outer = spillway.checkpoint_wrapper(spillway.checkpoint_wrapper(inner), offload_to_cpu=True)
    with Copied() as copied:
        assert same(after(outer), plain) and len(runs) == 6
    assert copied.out > 0
    once = make()
    assert list(once.state_dict()) == list(outer.state_dict())

    class Called(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = make()

        def forward(self, x):
            return spillway.checkpoint(lambda x: self.net(x), x)

    called = Called()
    assert same(after(called), plain) and len(runs) == 6
    with torch.no_grad():
        before = once[1].num_batches_tracked.clone()
        spillway.checkpoint_wrapper(once)(batch())
        assert once[1].num_batches_tracked == before + 1


@case
def batch_norm_counts_once_wherever_the_function_finds_it():
    def make(**options):
        torch.manual_seed(2)
        return nn.Sequential(
            nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH, **options), nn.Unflatten(1, (8, 8)),
            nn.InstanceNorm1d(8, track_running_stats=True),
        ).cuda()  # fmt: skip

    def by_global(net):
        norms["net"] = net
        return lambda x: norms["net"](x)

    def by_method(net):
        method = net.forward
        return lambda x: method(x)

    def unhooked(net):
        forwards = [layer.forward for layer in net]

        def run(x):
            for forward in forwards:
                x = forward(x)
            return x

        return run

    def after(net, call):
        for seed in range(3):
            x = batch(seed).requires_grad_()
            call(x).square().sum().backward()
        return [*net.state_dict().values(), *(p.grad for p in net.parameters()), x.grad]

    for options in ({}, {"momentum": None}):
        net = make(**options)
        plain = after(net, net)
        for find in (by_global, by_method, unhooked):
            net = make(**options)
            function = find(net)
            found = after(net, lambda x, function=function: spillway.checkpoint(function, x))
            assert same(found, plain), (find.__name__, options)


@case
def batch_norm_in_a_compiled_module_counts_once():
    def by_itself(net):
        return lambda x: net(x)

    def by_partial(net):
        return functools.partial(lambda *, net, x: net(x), net=net)

    def by_nested_partial(net):
        return functools.partial(functools.partial(lambda net, scale, x: net(x) * scale, net), 2)

    for rows, find in enumerate((by_itself, by_partial, by_nested_partial), start=50):
        torch._dynamo.reset()
        net = nn.Sequential(nn.BatchNorm1d(WIDTH), nn.Tanh()).cuda()
        function = find(torch.compile(net, backend="aot_eager"))
        x = batch(rows=rows).requires_grad_()
        with Copied() as copied:
            y = spillway.checkpoint(function, x=x * 1, offload_to_cpu=True)
            after = [value.clone() for value in net.state_dict().values()]
            y.sum().backward()
        assert same(net.state_dict().values(), after), find
        assert net[0].num_batches_tracked == 1 and copied.out > 0


@case
def layers_in_half_precision_have_the_plain_state_after_a_step():
    for norm in (nn.LayerNorm, nn.BatchNorm1d):
        for dtype in (torch.float32, torch.float16, torch.bfloat16):

            def after(wrap, norm=norm, dtype=dtype):
                torch.manual_seed(2)
                net = nn.Sequential(nn.Linear(WIDTH, WIDTH), norm(WIDTH), nn.Tanh()).to("cuda", dtype)
                if wrap:
                    spillway.checkpoint_wrapper(net, offload_to_cpu=True)
                optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
                net(batch().to(dtype)).float().square().sum().backward()
                optimizer.step()
                return list(net.state_dict().values())

            with Copied() as copied:
                found = after(True)
            assert same(found, after(False)) and copied.out > 0, (norm, dtype)


@case
def autocasts_cache_is_as_it_was_in_the_first_run():
    for cached in (False, True):
        seen = []

        def function(x, seen=seen):
            seen.append(torch.is_autocast_cache_enabled())
            return x.sigmoid()

        with torch.autocast("cuda", dtype=torch.bfloat16, cache_enabled=cached):
            y = spillway.checkpoint(function, batch().requires_grad_())
        with torch.autocast("cuda", dtype=torch.bfloat16, cache_enabled=not cached):
            y.sum().backward()
            assert torch.is_autocast_cache_enabled() is not cached
        assert seen == [cached, cached]
