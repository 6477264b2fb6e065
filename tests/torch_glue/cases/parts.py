# SPDX-License-Identifier: Apache-2.0
"""Models whose parts take turns on the device."""

import copy
import threading

import spillway
import torch
from spillway.offload_model import split_by_bytes
from torch import nn

from cases import case
from cases.measure import same_bits

WIDTH = 48


def layers(count=6, seed=1, norm=False, dropout=0.0):
    torch.manual_seed(seed)
    return nn.Sequential(
        *(
            nn.Sequential(
                nn.Linear(WIDTH, WIDTH),
                nn.BatchNorm1d(WIDTH) if norm else nn.LayerNorm(WIDTH),
                nn.Dropout(dropout),
                nn.GELU(),
            )
            for _ in range(count)
        )
    )


def batch(seed=3, rows=10):
    torch.manual_seed(seed)
    return torch.randn(rows, WIDTH, device="cuda")


def same(left, right):
    left, right = list(left), list(right)
    return len(left) == len(right) and all(
        same_bits(a.cpu(), b.cpu()) for a, b in zip(left, right, strict=True)
    )


def train(net, steps=3, optimizer=torch.optim.SGD, rows=10):
    """Inputs' gradients, losses and the state after some steps."""
    optimizer = optimizer(net.parameters(), lr=0.05)
    seen = []
    for step in range(steps):
        x = batch(step, rows).requires_grad_()
        torch.manual_seed(step)
        loss = net(x).square().sum()
        loss.backward()
        seen += [loss.detach(), x.grad]
        optimizer.step()
        optimizer.zero_grad()
    return [*seen, *net.state_dict().values()]


@case
def a_model_in_parts_trains_as_the_plain_one():
    for optimizer in (torch.optim.SGD, torch.optim.AdamW):
        for checkpoint in (False, True):
            for norm in (False, True):
                plain = train(layers(norm=norm).cuda(), optimizer=optimizer)
                net = spillway.OffloadModel(
                    layers(norm=norm), "cuda", checkpoint_activation=checkpoint, num_slices=3
                )
                found = train(net, optimizer=optimizer)
                assert same(found, plain), (optimizer, checkpoint, norm)
                assert net.stats()["extra_slots"] == 0


@case
def parameters_stay_the_same_objects_on_the_host():
    model = layers()
    before = list(model.parameters())
    net = spillway.OffloadModel(model, "cuda")
    train(net, steps=1)
    assert all(a is b for a, b in zip(before, net.parameters(), strict=True))
    assert all(p.device.type == "cpu" for p in net.parameters())
    assert [name.removeprefix("model.") for name in net.state_dict()] == list(layers().state_dict())


@case
def weights_come_in_twice_and_gradients_go_out_once():
    model = layers()
    size = sum(p.nbytes for p in model.parameters())
    for checkpoint in (False, True):
        for pieces in (1, 5):
            net = spillway.OffloadModel(
                copy.deepcopy(model),
                "cuda",
                num_slices=6,
                checkpoint_activation=checkpoint,
                num_microbatches=pieces,
            )
            net(batch()).sum().backward()
            moved = net.stats()
            padded = moved["slot_bytes"] // 2 * 6
            # The last two parts are still there when the backward pass begins.
            assert moved["gradient_bytes"] == size
            assert moved["loaded_bytes"] == padded * 10 // 6, (checkpoint, pieces, moved)


@case
def micro_batches_have_the_bits_of_a_plain_loop_over_them():
    for checkpoint in (False, True):
        plain = layers(norm=True, dropout=0.3).cuda()
        net = spillway.OffloadModel(
            layers(norm=True, dropout=0.3),
            "cuda",
            checkpoint_activation=checkpoint,
            num_microbatches=4,
            num_slices=6,
        )
        x, y = (batch(rows=11).requires_grad_() for _ in range(2))  # the last piece is smaller
        torch.manual_seed(7)
        out = net(x)
        out.square().sum().backward()
        torch.manual_seed(7)
        pieces = list(y.chunk(4))
        for layer in plain:
            pieces = [layer(piece) for piece in pieces]
        expected = torch.cat(pieces)
        expected.square().sum().backward()
        assert same([out, x.grad], [expected, y.grad]), checkpoint
        assert same(net.state_dict().values(), plain.state_dict().values())
        assert same([p.grad for p in net.parameters()], [p.grad for p in plain.parameters()])


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
def a_list_of_parts_passes_several_arguments_on():
    class Start(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(WIDTH, WIDTH)

        def forward(self, x, other, *, scale):
            return self.a(x) * scale, other

    class End(nn.Module):
        def __init__(self):
            super().__init__()
            self.b = nn.Linear(WIDTH, 1)

        def forward(self, x, other):
            return {"y": self.b(x + other), "n": 3}

    def make():
        torch.manual_seed(2)
        return [Start(), End()]

    start, end = (part.cuda() for part in make())
    expected = end(*start(batch(1), batch(2), scale=2.0))
    for options in ({}, {"checkpoint_activation": True}, {"num_microbatches": 3}):
        net = spillway.OffloadModel(make(), "cuda", **options)
        out = net(batch(1), batch(2), scale=2.0)
        assert out["n"] == 3 and out["y"].shape == (10, 1)
        if "num_microbatches" not in options:
            assert same([out["y"]], [expected["y"]])
        out["y"].sum().backward()


@case
def tied_weights_stay_tied():
    def make():
        torch.manual_seed(2)
        first, last = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        last.weight = first.weight
        return nn.Sequential(first, nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh(), last)

    net = spillway.OffloadModel(make(), "cuda", num_slices=3)
    assert same(train(net), train(make().cuda()))
    assert net.model[0].weight is net.model[4].weight


@case
def evaluation_needs_no_gradients_and_changes_nothing():
    net, plain = spillway.OffloadModel(layers(norm=True), "cuda").eval(), layers(norm=True).cuda().eval()
    before = [value.clone() for value in net.state_dict().values()]
    with torch.no_grad():
        assert same([net(batch())], [plain(batch())])
    assert same(net.state_dict().values(), before)


@case
def an_exception_in_a_part_leaves_the_parameters_on_the_host():
    class Fails(nn.Module):
        def forward(self, x):
            raise KeyError("mine")

    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), Fails())
    net = spillway.OffloadModel(model, "cuda", num_slices=2)
    try:
        net(batch())
        raise AssertionError("it was to raise")
    except KeyError:
        pass
    assert all(p.device.type == "cpu" for p in net.parameters())
    model[1].forward = lambda x: x
    net(batch()).sum().backward()


@case
def a_parameter_changed_between_forward_and_backward_is_noticed():
    net = spillway.OffloadModel(layers(), "cuda")
    loss = net(batch()).square().sum()
    torch.cuda.synchronize()
    with torch.no_grad():
        net.model[1][0].weight.mul_(2)
    try:
        loss.backward()
        raise AssertionError("it was to raise")
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error), error


@case
def a_part_that_came_in_vain_is_not_read_after_the_pass():
    net = spillway.OffloadModel(layers(6), "cuda", num_slices=3)
    for parameter in net.model[:2].parameters():
        parameter.requires_grad_(False)
    net(batch()).sum().backward()
    with torch.no_grad():
        net.model[0][0].weight.mul_(2)  # the order checker sees who still reads it


@case
def gradients_of_gradients_find_the_weights_that_they_hold():
    def run(net):
        x = batch().requires_grad_()
        (first,) = torch.autograd.grad(net(x).square().sum(), [x], create_graph=True)
        first.square().sum().backward()
        return [x.grad, *(p.grad for p in net.parameters() if p.grad is not None)]

    net = spillway.OffloadModel(layers(), "cuda", num_slices=6)
    assert same(run(net), run(layers().cuda()))
    assert net.stats()["extra_slots"] > 0


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
def parameters_with_hooks_are_refused_and_nothing_has_changed():
    model = layers().cuda()
    model[4][0].weight.register_hook(lambda grad: grad)
    try:
        spillway.OffloadModel(model, "cuda")
        raise AssertionError("it was to raise")
    except ValueError as error:
        assert "hooks of the parameters themselves are not served" in str(error)
    assert all(p.is_cuda for p in model.parameters())


@case
def the_device_holds_two_parts_and_no_more():
    model = layers(12)
    whole = sum(p.nbytes for p in model.parameters())
    net = spillway.OffloadModel(model, "cuda", num_slices=12, checkpoint_activation=True)
    net(batch()).sum().backward()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    net(batch()).sum().backward()
    peak = torch.cuda.max_memory_allocated() - before
    assert net.stats()["slot_bytes"] <= whole // 5 and peak < whole // 3, (peak, whole)


@case
def layers_are_split_so_that_the_largest_part_is_small():
    sizes = [5, 1, 1, 1, 5, 2]
    made = [nn.Linear(size, 1, bias=False) for size in sizes]
    parts = [[m.in_features for m in part] for part in split_by_bytes(made, 3)]
    assert (
        [size for part in parts for size in part] == sizes and len(parts) == 3 and max(map(sum, parts)) == 7
    ), parts
    assert [len(part) for part in split_by_bytes(made, 6)] == [1] * 6
    assert len(split_by_bytes([nn.ReLU(), nn.ReLU()], 2)) == 2


@case
def what_cannot_be_used_is_refused_by_name():
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    for arguments, error, text in (
        (
            (nn.Linear(2, 2), "cuda"),
            TypeError,
            "model must be an nn.Sequential or a list of modules, not Linear",
        ),
        ((nn.Sequential(), "cuda"), ValueError, "model has no layers"),
        ((model, "cpu"), ValueError, "device must be a CUDA device, not 'cpu'"),
        ((model, "cuda", "cuda"), ValueError, "offload_device must be the CPU, not 'cuda'"),
        ((model, "cuda", "cpu", 0), ValueError, "num_slices must be from 1 to 2, not 0"),
        ((model, "cuda", "cpu", 3), ValueError, "num_slices must be from 1 to 2, not 3"),
        (
            (model, "cuda", "cpu", 1, "yes"),
            TypeError,
            "checkpoint_activation must be True or False, not 'yes'",
        ),
        ((model, "cuda", "cpu", 1, True, 0), ValueError, "num_microbatches must be at least 1, not 0"),
    ):
        try:
            spillway.OffloadModel(*arguments)
            raise AssertionError(f"{text}: it was to raise")
        except error as raised:
            assert str(raised) == text, raised
    net = spillway.OffloadModel(model, "cuda", num_slices=2)
    try:
        net.half()
        raise AssertionError("it was to raise")
    except RuntimeError as raised:
        assert "convert the model before wrapping it" in str(raised)
