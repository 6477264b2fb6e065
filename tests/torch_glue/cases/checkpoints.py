# SPDX-License-Identifier: Apache-2.0
"""Checkpointed functions and modules: what is forgotten comes back, bit for bit."""

import copy
import functools
import gc
import inspect
import pickle
import threading
import weakref

import spillway
import torch
from torch import nn

from cases import case
from cases.measure import Moved, gradients_of_gradients, residency, same

WIDTH = 64


def batch(seed=3, rows=16):
    torch.manual_seed(seed)
    return torch.randn(rows, WIDTH, device="cuda")


class Block(nn.Module):
    """Counts its runs; draws random numbers."""

    def __init__(self, dropout=0.3):
        super().__init__()
        self.a, self.b = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.dropout = nn.Dropout(dropout)
        self.runs = 0

    def forward(self, x, scale=1.0):
        self.runs += 1
        return self.b(self.dropout(self.a(x).tanh())) * scale


def blocks(count=3, **options):
    torch.manual_seed(1)
    return nn.Sequential(*(Block(**options) for _ in range(count))).cuda()


def gradients(net, x, seed=9, **context):
    """Gradients of the parameters and of `x` after one step."""
    net.zero_grad()
    x = x.clone().requires_grad_()
    torch.manual_seed(seed)
    net(x).square().sum().backward()
    return [p.grad.clone() for p in net.parameters()] + [x.grad]


def wrapped(net, **options):
    for block in net:
        spillway.checkpoint_wrapper(block, **options)
    return net


@case
def a_wrapped_module_has_the_gradients_of_the_plain_one():
    for offload in (False, True):
        net = wrapped(blocks(), offload_to_cpu=offload)
        with Moved() as moved:
            assert same(gradients(net, batch()), gradients(blocks(), batch())), offload
        assert [block.runs for block in net] == [2, 2, 2]
        # The first input is a leaf that wants its gradient, which somebody holds for sure.
        assert moved.out == (2 * 16 * WIDTH * 4 if offload else 0), moved.out


@case
def inputs_come_back_ahead_of_the_second_run():
    fetches = []

    def block(x):
        if spillway.is_recomputing():
            fetches.append(residency()["fetches"])
        return x.sigmoid()

    before = residency()["fetches"]
    y = batch().requires_grad_() * 1
    for _ in range(4):
        y = spillway.checkpoint(block, y, offload_to_cpu=True)
    torch.cuda.synchronize()
    spillway.step()
    y.sum().backward()
    # While a block runs again, the input of the one before it is on its way.
    assert [n - before for n in fetches] == [2, 3, 4, 4], fetches


@case
def arguments_of_any_shape_reach_the_function_again():
    def function(first, pair, *, named, nothing=None, text="x"):
        assert nothing is None and text == "y"
        return {"sum": first + pair["left"][0] * 2, "product": (named * pair["left"][1],), "text": text}

    def run(call):
        leaves = [batch(seed).requires_grad_() for seed in range(4)]
        a, b, c, d = (leaf * 1 for leaf in leaves)
        out = call(function, a, {"left": [b, c]}, named=d, text="y")
        assert out["text"] == "y" and isinstance(out["product"], tuple)
        (out["sum"] * out["product"][0]).square().sum().backward()
        return [leaf.grad for leaf in leaves]

    plain = run(lambda function, *args, **kwargs: function(*args, **kwargs))
    assert same(run(spillway.checkpoint), plain)
    with Moved() as moved:
        assert same(run(lambda *a, **k: spillway.checkpoint(*a, offload_to_cpu=True, **k)), plain)
    assert moved.out > 0


@case
def results_that_are_no_tensors_are_passed_on():
    for result in (None, 3, "text", [1, None]):
        assert spillway.checkpoint(lambda x, value=result: value, batch()) is result


@case
def a_module_trains_whose_inputs_need_no_gradient():
    net = spillway.checkpoint_wrapper(blocks(1)[0], offload_to_cpu=True)
    plain = blocks(1)[0]
    with Moved() as moved:
        for one in (net, plain):
            torch.manual_seed(9)
            one(batch()).sum().backward()
    assert moved.out > 0
    assert same([p.grad for p in net.parameters()], [p.grad for p in plain.parameters()])


@case
def gradients_flow_through_a_frozen_module():
    def run(wrap):
        net = blocks()
        if wrap:
            wrapped(net, offload_to_cpu=True)
        for parameter in net[1].parameters():
            parameter.requires_grad_(False)
        x = batch().requires_grad_()
        torch.manual_seed(9)
        with Moved() as moved:
            net(x).sum().backward()
        assert net[1].a.weight.grad is None
        assert [block.runs for block in net] == [1 + wrap] * 3 and (moved.out > 0) == wrap
        return [x.grad, *(p.grad for p in net[0].parameters())]

    assert same(run(True), run(False))


@case
def nothing_is_run_again_that_needs_no_gradient():
    net = wrapped(blocks())
    for parameter in net.parameters():
        parameter.requires_grad_(False)
    y = net(batch())
    assert not y.requires_grad and [block.runs for block in net] == [1, 1, 1]
    with torch.no_grad():
        assert not net(batch()).requires_grad
    assert [block.runs for block in net] == [2, 2, 2]


@case
def checkpointing_can_be_switched_off():
    net = wrapped(blocks(), offload_to_cpu=True)
    with Moved() as moved, spillway.disable_checkpointing():
        found = gradients(net, batch())
    assert same(found, gradients(blocks(), batch()))
    assert [block.runs for block in net] == [1, 1, 1] and moved.out == 0


@case
def functions_know_whether_they_run_for_the_first_time():
    seen = []

    def function(x):
        seen.append((spillway.is_checkpointing(), spillway.is_recomputing()))
        return x.sigmoid()

    spillway.checkpoint(function, batch().requires_grad_()).sum().backward()
    assert seen == [(True, False), (False, True)]
    assert not spillway.is_checkpointing() and not spillway.is_recomputing()


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

        with Moved() as moved:
            found = run(wrapped(blocks(), offload_to_cpu=True))
        assert same(found, run(blocks())) and moved.out > 0, dtype


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
    with Moved() as moved:
        assert same(after(outer), plain) and len(runs) == 6
    assert moved.out > 0
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


norms = {}


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
        with Moved() as moved:
            y = spillway.checkpoint(function, x=x * 1, offload_to_cpu=True)
            after = [value.clone() for value in net.state_dict().values()]
            y.sum().backward()
        assert same(net.state_dict().values(), after), find
        assert net[0].num_batches_tracked == 1 and moved.out > 0


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

            with Moved() as moved:
                found = after(True)
            assert same(found, after(False)) and moved.out > 0, (norm, dtype)


@case
def nested_checkpoints_have_the_plain_gradients():
    net = blocks()

    def inner(x):
        return net[1](net[0](x))

    def outer(x):
        return net[2](spillway.checkpoint(inner, x).tanh())

    def run(checkpoint):
        net.zero_grad()
        torch.manual_seed(9)
        x = batch().requires_grad_()
        y = checkpoint(outer, x * 1) if checkpoint else net[2](inner(x * 1).tanh())
        y.sum().backward()
        return [x.grad, *(p.grad.clone() for p in net.parameters())]

    assert same(run(spillway.checkpoint), run(None))
    with Moved() as moved:
        assert same(run(lambda f, x: spillway.checkpoint(f, x, offload_to_cpu=True)), run(None))
    assert moved.out > 0


@case
def checkpoints_and_regions_nest_either_way():
    net = blocks()
    plain = gradients(net, batch())

    def outside(x):
        with spillway.CPUOffload(1, tag="outside"):
            return spillway.checkpoint(net, x * 1)

    def inside(x):
        def function(x):
            with spillway.CPUOffload(1, tag="inside"):
                return net(x * 1)

        return spillway.checkpoint(function, x)

    def torchs(x):
        return spillway.checkpoint(
            lambda x: torch.utils.checkpoint.checkpoint(net, x, use_reentrant=False), x * 1
        )

    def in_torchs(x):
        return torch.utils.checkpoint.checkpoint(
            lambda x: spillway.checkpoint(net, x * 1, offload_to_cpu=True), x, use_reentrant=False
        )

    for function in (outside, inside, torchs, in_torchs):
        net.zero_grad()
        x = batch().requires_grad_()
        torch.manual_seed(9)
        with Moved() as moved:
            function(x).square().sum().backward()
        assert same([p.grad for p in net.parameters()] + [x.grad], plain), function
        assert (moved.out > 0) == (function is not torchs), function


@case
def regions_inside_move_nothing_in_the_second_run():
    def function(x):
        with spillway.CPUOffload(1, tag="inner"):
            y = (x * 1).sigmoid()
        return (y * 1).tanh()

    with Moved() as moved:
        spillway.checkpoint(function, batch().requires_grad_()).sum().backward()
    assert moved.out == 16 * WIDTH * 4


@case
def gradients_of_gradients_are_the_plain_ones():
    net, plain = wrapped(blocks(dropout=0.0), offload_to_cpu=True), blocks(dropout=0.0)
    with Moved() as moved:
        found = gradients_of_gradients(net, batch().requires_grad_())
    assert moved.out > 0 and same(found, gradients_of_gradients(plain, batch().requires_grad_()))


@case
def a_copy_of_a_wrapped_module_runs_with_its_own_parameters():
    net = spillway.checkpoint_wrapper(blocks(1)[0])
    twin = copy.deepcopy(net)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.mul_(2)
    torch.manual_seed(0)
    mine = net(batch())
    torch.manual_seed(0)
    assert not torch.equal(twin(batch()), mine)
    loaded = pickle.loads(pickle.dumps(net))
    torch.manual_seed(0)
    assert torch.equal(loaded(batch()), mine)
    loaded(batch()).sum().backward()
    # Each checkpointed still: it runs again, and its argument moves where that was asked for.
    for one in (net, twin, loaded):
        one.runs = 0
        spillway.checkpoint_wrapper(one, offload_to_cpu=True)
    for one in (net, twin, loaded, copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        with Moved() as moved:
            one(batch(rows=24).requires_grad_() * 1).sum().backward()
        assert one.runs in (2, 4) and moved.out == 24 * WIDTH * 4, (one.runs, moved.out)
    for one in (twin, loaded):
        assert isinstance(one, Block) and type(one).__name__ == "Block"
        assert list(one.state_dict()) == list(net.state_dict())


@case
def a_forward_of_the_objects_own_is_checkpointed_too():
    net = blocks(1)[0]
    inner, runs = net.forward, []
    net.forward = lambda x: runs.append(1) or inner(x) * 2
    spillway.checkpoint_wrapper(net)
    net(batch().requires_grad_()).sum().backward()
    assert len(runs) == 2


@case
def an_argument_that_was_changed_in_place_is_noticed():
    for offload in (False, True):
        x = batch().requires_grad_() * 1
        y = spillway.checkpoint(lambda x: x.sigmoid() * 2, x, offload_to_cpu=offload)
        torch.cuda.synchronize()  # the copy of it is a reader
        with torch.no_grad():
            x.add_(1)
        try:
            y.sum().backward()
            raise AssertionError("it was to raise")
        except RuntimeError as error:
            assert "modified by an inplace operation" in str(error), error


@case
def a_parameter_that_was_changed_before_the_second_run_is_noticed():
    net = wrapped(blocks(1, dropout=0.0))
    y = net(batch().requires_grad_()).sum()
    with torch.no_grad():
        net[0].b.weight.mul_(2)
    try:
        y.backward()
        raise AssertionError("it was to raise")
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error), error


@case
def a_new_object_of_a_wrapped_class_is_usable():
    net = spillway.checkpoint_wrapper(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Tanh()).cuda())
    net[:2](batch().requires_grad_()).sum().backward()
    block = spillway.checkpoint_wrapper(blocks(1)[0])
    assert list(inspect.signature(block.forward).parameters) == ["x", "scale"]


@case
def a_function_that_does_something_else_the_second_time_is_noticed():
    def function(x, more):
        runs.append(1)
        return x.sigmoid().tanh() if len(runs) == 1 else more(x)

    texts = []
    for more in (lambda x: x.sigmoid(), lambda x: x[:1].sigmoid().tanh(), lambda x: x.double().sigmoid()):
        runs = []
        try:
            spillway.checkpoint(function, batch().requires_grad_(), more).sum().backward()
            raise AssertionError("it was to raise")
        except RuntimeError as error:
            assert "did something else when it was run again" in str(error), error
            texts.append(str(error))
    assert "it saved 1 tensors where it had saved 2" in texts[0], texts[0]
    for text, other in ((texts[1], "float[1, 64]"), (texts[2], "double[16, 64]")):
        assert f"saved {other} on cuda:0 where it had saved float[16, 64] on cuda:0" in text.lower(), text


@case
def an_exception_of_either_run_arrives_as_itself():
    class Mine(Exception):
        pass

    def function(x, at):
        runs.append(1)
        y = x.sigmoid()
        if len(runs) == at:
            raise Mine
        return y.tanh()

    for at in (1, 2):
        runs = []
        try:
            spillway.checkpoint(function, batch().requires_grad_(), at).sum().backward()
            raise AssertionError("it was to raise")
        except Mine:
            pass
        assert not spillway.is_checkpointing() and not spillway.is_recomputing()
        with Moved() as moved:
            (batch().requires_grad_() * 2).sigmoid().sum().backward()
        assert moved.out == 0


@case
def nothing_is_held_without_the_collector_of_cycles():
    gc.disable()
    try:
        net = wrapped(blocks(), offload_to_cpu=True)
        x = batch().requires_grad_() * 1
        seen = weakref.ref(x)
        with Moved() as moved:
            y = net(x).sum()
        y.backward()
        del x, y
        assert seen() is None and moved.out > 0
        alive = weakref.ref(net[0])
        del net
        assert alive() is None
    finally:
        gc.enable()


@case
def threads_run_their_checkpoints_at_the_same_time():
    expected = {seed: gradients(blocks(dropout=0.0), batch(seed)) for seed in range(4)}
    found = {}

    def train(seed):
        found[seed] = gradients(nets[seed], inputs[seed])

    nets = {seed: wrapped(blocks(dropout=0.0), offload_to_cpu=True) for seed in range(4)}
    inputs = {seed: batch(seed) for seed in range(4)}
    threads = [threading.Thread(target=train, args=(seed,)) for seed in range(4)]
    with Moved() as moved:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert all(same(found[seed], expected[seed]) for seed in range(4)) and moved.out > 0


@case
def a_saved_view_of_what_came_back_keeps_its_values():
    class ViewOfSaved(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return x.view(-1)[: x.numel()].view_as(x)  # no copy

    def run(call):
        x = batch().requires_grad_()
        y = x * 1
        for _ in range(3):
            y = call(lambda y: ViewOfSaved.apply(y.tanh()), y)
        y.sum().backward()
        return [x.grad]

    plain = run(lambda function, y: function(y))
    with Moved() as moved:
        found = run(lambda function, y: spillway.checkpoint(function, y, offload_to_cpu=True))
    assert same(found, plain) and moved.out > 0 and moved.back > 0


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
