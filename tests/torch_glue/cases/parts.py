# SPDX-License-Identifier: Apache-2.0
"""Models whose parts take turns on the device."""

import copy
import gc
import pickle

import spillway
import torch
from torch import nn

from cases import case
from cases.measure import SCRATCH, same

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


@case
def parameters_stay_the_same_objects_on_the_device():
    model = layers()
    before = list(model.parameters())
    net = spillway.OffloadModel(model, "cuda")
    train(net, steps=1)
    assert all(a is b for a, b in zip(before, net.parameters(), strict=True))
    assert all(p.device.type == "cuda" for p in net.parameters())
    assert [name.removeprefix("model.") for name in net.state_dict()] == list(layers().state_dict())


@case
def weights_come_in_twice_and_gradients_go_out_once():
    model = layers()
    one = model[0][0].weight.nbytes  # smaller storages stay
    for checkpoint in (False, True):
        for pieces in (1, 5):
            net = spillway.OffloadModel(
                copy.deepcopy(model),
                "cuda",
                num_slices=6,
                checkpoint_activation=checkpoint,
                num_microbatches=pieces,
            )
            before = spillway.stats()["model_state"]
            net(batch()).sum().backward()
            after = spillway.stats()["model_state"]
            moved = {name: after[f"{name}_bytes"] - before[f"{name}_bytes"] for name in ("fetched", "copied")}
            # Two parts are still there when the backward pass begins, and one when it ends.
            assert moved == {"fetched": 10 * one, "copied": 5 * one}, (checkpoint, pieces, moved)


@case
def the_next_part_is_fetched_while_one_runs():
    net, seen = spillway.OffloadModel(layers(), "cuda", num_slices=6), []
    one = net.model[0][0].weight.nbytes

    def note(*_):
        seen.append(spillway.stats()["model_state"]["classes"]["parameters"]["resident_bytes"] // one)

    for layer in net.model:
        layer.register_forward_pre_hook(note)
        layer.register_full_backward_hook(note)
    net(batch().requires_grad_()).sum().backward()
    # At first the one that runs is not there yet; the last one to run backward has none that follows.
    assert seen == [1, *[2] * 10, 1], seen


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
def tensors_are_copied_to_the_device_from_wherever_they_are():
    net, plain = spillway.OffloadModel(layers(), "cuda"), layers().cuda()
    on_host = batch().cpu().requires_grad_()
    on_device = batch().requires_grad_()
    found, expected = net(on_host), plain(on_device)
    for out in (found, expected):
        out.square().sum().backward()
    assert found.device == expected.device
    assert same([found, on_host.grad.cuda()], [expected, on_device.grad])


@case
def parameters_may_be_frozen_and_thawed_after_they_were_wrapped():
    def run(net):
        parameters = list(net.parameters())
        seen = []
        for frozen in (parameters[:8], parameters[8:], []):
            net.zero_grad()
            net.requires_grad_(True)
            for parameter in frozen:
                parameter.requires_grad_(False)
            net(batch()).square().sum().backward()
            seen += [parameter.grad for parameter in parameters]
        return seen

    frozen_at_first = layers()
    frozen_at_first[0].requires_grad_(False)
    assert same(run(spillway.OffloadModel(frozen_at_first, "cuda")), run(layers().cuda()))


@case
def inference_mode_has_the_plain_results_and_training_goes_on():
    net, plain = spillway.OffloadModel(layers(norm=True), "cuda"), layers(norm=True).cuda()
    results = []
    for one in (net, plain):
        with torch.inference_mode():
            results.append(one(batch(1)))
        one(batch(2)).square().sum().backward()
    assert same([results[0]], [results[1]])
    assert same([p.grad for p in net.parameters()], [p.grad for p in plain.parameters()])


@case
def a_model_in_parts_is_not_copied():
    net = spillway.OffloadModel(layers(2), "cuda", num_slices=2)
    for copied in (copy.deepcopy, pickle.dumps):
        try:
            copied(net)
            raise AssertionError("it was to raise")
        except TypeError as error:
            assert "OffloadModel" in str(error) and "state_dict" in str(error), error


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
def an_exception_in_a_part_leaves_a_model_that_trains():
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
    model[1].forward = lambda x: x
    net(batch()).sum().backward()
    plain = copy.deepcopy(model)
    plain.zero_grad()
    plain(batch()).sum().backward()
    assert same([p.grad for p in net.parameters()], [p.grad for p in plain.parameters()])


def change_a_weight_and_expect_the_error(net, loss):
    torch.cuda.synchronize()
    with torch.no_grad():
        net.model[1][0].weight.mul_(2)
    try:
        loss.backward()
        raise AssertionError("it was to raise")
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error), error


@case
def a_parameter_changed_between_forward_and_backward_is_noticed():
    net = spillway.OffloadModel(layers(), "cuda")
    loss = net(batch()).square().sum()
    change_a_weight_and_expect_the_error(net, loss)


class Averages(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))
        self.register_buffer("mean", torch.zeros(()))

    def forward(self, x):
        self.mean = self.mean * 0.9 + x.detach().mean()
        return x * self.weight + self.mean


@case
def a_buffer_may_be_assigned_again():
    net = spillway.OffloadModel(nn.Sequential(*(Averages() for _ in range(3))), "cuda")
    assert same(train(net), train(nn.Sequential(*(Averages() for _ in range(3))).cuda()))


@case
def a_parameter_may_be_used_outside_of_the_model_as_well():
    net, plain = spillway.OffloadModel(layers(), "cuda"), layers().cuda()
    for one in (net, plain):
        decay = sum(p.square().sum() for p in one.parameters())
        (one(batch()).square().sum() + decay).backward()
    assert same([p.grad for p in net.parameters()], [p.grad for p in plain.parameters()])


@case
def gradients_are_clipped_and_scaled_as_the_plain_models():
    def run(net):
        optimizer, seen = torch.optim.AdamW(net.parameters(), lr=0.01), []
        for step in range(3):
            net(batch(step)).square().sum().backward()
            seen.append(nn.utils.clip_grad_norm_(net.parameters(), 0.1))
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
        return [*seen, *net.state_dict().values()]

    assert same(run(spillway.OffloadModel(layers(), "cuda")), run(layers().cuda()))


@case
def states_of_an_optimizer_leave_too():
    net = spillway.OffloadModel(layers(12), "cuda", num_slices=12)
    optimizer = torch.optim.AdamW(net.parameters())
    net(batch()).sum().backward()
    optimizer.step()
    classes = spillway.stats()["model_state"]["classes"]
    largest = net.model[0][0].weight.nbytes
    assert classes["optimizer_states"]["offloaded_bytes"] == 24 * largest, classes
    assert all(of["resident_bytes"] == 0 for of in classes.values()), classes


@case
def the_device_holds_two_parts_and_no_more():
    model = layers(24)
    whole = sum(p.nbytes for p in model.parameters())
    net = spillway.OffloadModel(model, "cuda", num_slices=24, checkpoint_activation=True)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(2):
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        net(batch()).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        peak = torch.cuda.max_memory_allocated() - before
    assert peak < whole // 3, (peak, whole)


@case
def two_halves_take_the_memory_of_one_slice():
    """And their gradients that of another one."""
    nn.Linear(8, 8, device="cuda")(torch.ones(8, 8, device="cuda")).sum().backward()  # makes workspaces
    for checkpoint in (False, True):
        gc.collect()
        torch.cuda.synchronize()
        spillway.step()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        torch.manual_seed(1)
        model = nn.Sequential(*(nn.Linear(512, 512, bias=False) for _ in range(16)))
        whole = sum(p.nbytes for p in model.parameters())
        net = spillway.OffloadModel(model, "cuda", num_slices=4, checkpoint_activation=checkpoint)
        for _ in range(3):
            net(torch.ones(2, 512, device="cuda")).sum().backward()
            net.zero_grad()
        peak = torch.cuda.max_memory_allocated() - before
        assert peak <= whole // 2 + SCRATCH, (checkpoint, peak / whole)
