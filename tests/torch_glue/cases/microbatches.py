# SPDX-License-Identifier: Apache-2.0
"""Micro-batches wait on the host and are fetched before their backward pass, as far as the horizon allows."""

import logging
from contextlib import nullcontext

import spillway
import torch
from torch import nn

from cases import case
from cases.measure import Copied, residency, same

WIDTH = 64
ROWS = 32
UNIT = ROWS * WIDTH * 4
LAYERS = 4
BATCHES = 4


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.at_second_run = lambda: None

    def forward(self, x):
        if spillway.compat.is_recomputing():
            self.at_second_run()
        return self.linear(x).tanh()


def network(checkpointed=True):
    torch.manual_seed(2)
    layers = [Layer() for _ in range(LAYERS)]
    if checkpointed:
        layers = [spillway.checkpoint_wrapper(layer) for layer in layers]
    return nn.Sequential(*layers).cuda()


def data(count=BATCHES):
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(ROWS, WIDTH, generator=generator) for _ in range(count)]


def release():
    """Of what a copy out has read: then it has to be fetched."""
    torch.cuda.synchronize()
    spillway.step()


def step(net, micro=None, count=BATCHES, order=lambda losses: losses):
    """Gradients of one step: all forward passes, then all backward passes in `order`."""
    net.zero_grad()
    with micro or nullcontext():
        losses = []
        for one in data(count):
            with micro.batch() if micro else nullcontext():
                y = net(one.cuda() * 1)
            losses.append(y.sum())  # saves nothing
            del y
        release()
        for loss in order(losses):
            loss.backward()
    return [p.grad.clone() for p in net.parameters()]


def begun(net, micro, **options):
    """How many copies back had begun at each second run of a layer."""
    seen = []

    def note():
        seen.append(residency()["fetches"] - before)

    for layer in net:
        layer.at_second_run = note
    before = residency()["fetches"]
    step(net, micro, **options)
    for layer in net:
        layer.at_second_run = lambda: None
    return seen


UNITS = LAYERS * BATCHES


@case
def training_with_micro_batches_on_the_host_has_the_gradients_of_the_plain_loop():
    for checkpointed in (True, False):
        plain = step(network(checkpointed=False))
        for horizon in (1, 3, "auto"):
            micro = spillway.microbatches(activation_loading_horizon=horizon)
            net = network(checkpointed)
            for _ in range(3):
                with Copied() as copied:
                    assert same(step(net, micro), plain)
                assert copied.out > 0 and copied.back > 0, (checkpointed, horizon)


@case
def copies_back_begin_exactly_at_the_horizon():
    for horizon in (1, 2, 4, 8):
        net, micro = network(), spillway.microbatches(activation_loading_horizon=horizon)
        step(net, micro)  # the order is learnt
        # The first of all is so near to the last forward passes that it is fetched during them.
        assert begun(net, micro) == [min(UNITS, 1 + at + horizon) for at in range(UNITS)], horizon


@case
def the_first_step_finds_out_what_comes_next_once_its_backward_pass_runs():
    for order in (lambda losses: losses, reversed):
        assert begun(network(), spillway.microbatches(activation_loading_horizon=2), order=order) == [
            min(UNITS, 3 + at) for at in range(UNITS)
        ]


@case
def every_unit_that_has_left_is_fetched_once():
    net, micro = network(), spillway.microbatches(activation_loading_horizon=3)
    step(net, micro)
    with Copied() as copied:
        step(net, micro)
    assert (copied.stashes, copied.fetches) == (UNITS, UNITS)
    assert (copied.out, copied.back) == (UNITS * UNIT, UNITS * UNIT)


def backward_peak(horizon):
    """Bytes on the device at most while the backward passes run, over what was there before the step."""
    net = network()
    micro = spillway.microbatches(activation_loading_horizon=horizon) if horizon else None
    for _ in range(3):
        release()
        net.zero_grad()
        before = torch.cuda.memory_allocated()
        with micro or nullcontext():
            losses = []
            for one in data():
                with micro.batch() if micro else nullcontext():
                    losses.append(net(one.cuda() * 1).sum())
            release()
            torch.cuda.reset_peak_memory_stats()
            for loss in losses:
                loss.backward()
        del losses, loss
        peak = torch.cuda.max_memory_allocated() - before
    return peak


@case
def a_longer_horizon_holds_more_memory_and_none_as_much_as_nothing_moved():
    peaks = [backward_peak(horizon) for horizon in (1, 2, 4, 8)]
    assert peaks == sorted(set(peaks)), peaks
    # With horizon h this many units are on the device besides the one that runs.
    assert [peak - peaks[0] for peak in peaks] == [0, UNIT, 3 * UNIT, 7 * UNIT], peaks
    assert peaks[-1] < backward_peak(None), peaks


@case
def without_checkpoints_a_whole_micro_batch_is_the_unit():
    net, micro = network(checkpointed=False), spillway.microbatches(activation_loading_horizon=1)
    step(net, micro)
    before = residency()["fetches"]
    seen = []
    losses = []
    with micro:
        for one in data():
            with micro.batch():
                losses.append(net(one.cuda() * 1).sum())
        release()
        for loss in losses:
            loss.backward()
            seen.append(residency()["fetches"] - before)
    saved = 1 + LAYERS  # the input, and what each layer gives
    assert seen == [saved * min(BATCHES, 2 + at) for at in range(BATCHES)], seen


class Heard(logging.Handler):
    def __enter__(self):
        self.texts = []
        logging.getLogger("spillway").addHandler(self)
        return self

    def __exit__(self, *_):
        logging.getLogger("spillway").removeHandler(self)

    def emit(self, record):
        self.texts.append(record.getMessage())


@case
def with_one_micro_batch_nothing_is_gained_and_one_warning_is_given():
    net, micro = network(), spillway.microbatches()
    with Heard() as heard:
        for _ in range(3):
            with Copied() as copied:
                step(net, micro, count=1)
    assert copied.out == 0
    assert len(heard.texts) == 1 and "micro-batches" in heard.texts[0], heard.texts
    with Heard() as heard:
        step(network(), spillway.microbatches())
    assert heard.texts == []


@case
def a_micro_batch_whose_backward_pass_follows_at_once_stays():
    net, micro = network(), spillway.microbatches(activation_loading_horizon=1)
    step(net, micro, order=reversed)
    with Copied() as copied:
        step(net, micro, order=reversed)
    assert copied.stashes == UNITS - LAYERS


@case
def switched_off_nothing_moves():
    with Copied() as copied:
        found = step(network(), spillway.microbatches(offload_activations=False))
    assert same(found, step(network())) and copied.out == 0


@case
def other_numbers_of_micro_batches_and_orders_are_learnt_again():
    net, micro = network(), spillway.microbatches(activation_loading_horizon=2)
    for count, order in (
        (4, list),
        (4, reversed),
        (2, list),
        (3, reversed),
        (3, lambda x: [x[1], x[2], x[0]]),
    ):
        for _ in range(2):
            with Copied() as copied:
                found = step(net, micro, count=count, order=order)
            assert same(found, step(network(), count=count, order=order)), count
            assert copied.out > 0


@case
def a_graph_of_an_earlier_step_is_usable_and_a_retained_one_again():
    net, micro = network(), spillway.microbatches(activation_loading_horizon=2)
    with micro, micro.batch():
        old = net(data()[0].cuda() * 1).sum()
    plain = step(net, count=1)
    assert same(step(net, micro), step(net))
    for _ in range(2):
        net.zero_grad()
        old.backward(retain_graph=True)
        assert same([p.grad for p in net.parameters()], plain)


@case
def an_attached_module_runs_one_micro_batch_at_each_call():
    net = network()
    micro = spillway.microbatches(activation_loading_horizon=2)
    assert micro.attach(net) is net

    def train():
        net.zero_grad()
        with micro:
            losses = [net(one.cuda() * 1).sum() for one in data()]
            for loss in losses:
                loss.backward()
        return [p.grad.clone() for p in net.parameters()]

    with Copied() as copied:
        assert same(train(), step(network()))
    assert copied.stashes == UNITS and micro.stats()["batches"] == BATCHES
    with Copied() as copied:  # outside a step it is a plain module
        net(data()[0].cuda() * 1).sum().backward()
    assert copied.out == 0


def two_stages(order, micro=None):
    """Gradients of two stages in this process, whose passes run in `order`, twice."""
    stages = [network(), network()]
    for stage in stages if micro else ():
        micro.attach(stage)
    for _ in range(2):
        for stage in stages:
            stage.zero_grad()
        batches, between, results = data(), {}, {}
        with micro or nullcontext():
            for number, forward in order:
                if forward:
                    sent = stages[0](batches[number].cuda() * 1)
                    received = sent.detach().requires_grad_()
                    between[number] = (sent, received)
                    results[number] = stages[1](received * 1).sum()
                else:
                    results.pop(number).backward()
                    sent, received = between.pop(number)
                    sent.backward(received.grad)
                del sent, received
    return [p.grad for stage in stages for p in stage.parameters()]


@case
def two_stages_in_one_process_have_the_plain_gradients_in_the_order_of_each_schedule():
    gpipe = [(number, True) for number in range(4)] + [(number, False) for number in range(4)]
    one_by_one = [(0, True), (1, True)]
    for number in range(2, 4):
        one_by_one += [(number - 2, False), (number, True)]
    one_by_one += [(2, False), (3, False)]
    for order in (gpipe, one_by_one):
        with Copied() as copied:
            found = two_stages(order, spillway.microbatches(activation_loading_horizon=2))
        assert copied.out > 0 and same(found, two_stages(order)), order


@case
def an_exception_in_a_micro_batch_leaves_nothing_open():
    net, micro = network(), spillway.microbatches()
    micro.attach(net)
    for _ in range(2):
        try:
            with micro:
                net(torch.ones(3, device="cuda"))
            raise AssertionError("it was to raise")
        except RuntimeError:
            pass
    with Copied() as copied:
        (data()[0].cuda().requires_grad_() * 2).sigmoid().sum().backward()
    assert copied.out == 0
    net.zero_grad()
    assert same(step(network(), spillway.microbatches()), step(network()))


@case
def bad_options_are_refused_with_their_name_value_and_range():
    for value, kind, words in (
        (0, ValueError, "at least 1, not 0"),
        (-3, ValueError, "at least 1, not -3"),
        (True, TypeError, "not True"),
        (2.0, TypeError, "not 2.0"),
        (None, TypeError, "not None"),
        ("fast", ValueError, "'auto', not 'fast'"),
    ):
        try:
            spillway.microbatches(activation_loading_horizon=value)
            raise AssertionError(f"it was to refuse {value!r}")
        except kind as error:
            assert "activation_loading_horizon" in str(error) and words in str(error), error
    try:
        spillway.microbatches(offload_activations=1)
        raise AssertionError("it was to refuse 1")
    except TypeError as error:
        assert "offload_activations" in str(error), error
    for call in (lambda micro: micro.batch(), lambda micro: micro.__enter__().__enter__()):
        try:
            call(spillway.microbatches())
            raise AssertionError("it was to raise")
        except RuntimeError as error:
            assert "training step" in str(error), error


@case
def the_horizon_found_by_trying_grows_while_it_helps_and_there_is_room():
    from spillway._horizon import Tuner

    def run(time_of, free=1 << 30, unit=1 << 20, steps=60):
        tuner = Tuner()
        horizon = tuner.horizon
        for _ in range(steps):
            horizon = tuner.observe(time_of(horizon), free, unit, 4)
        return horizon, tuner

    assert run(lambda horizon: 1.0)[0] == 1
    assert run(lambda horizon: 1 + 1 / horizon if horizon < 4 else 1.25)[0] == 4
    assert run(lambda horizon: 1 / horizon, free=5 << 20)[0] == 8
    assert run(lambda horizon: 1 / horizon, free=0)[0] == 1
    tuner = run(lambda horizon: 1 / horizon, free=5 << 20)[1]
    assert tuner.observe(1.0, 0, 1 << 20, 4) == 4  # no room any more
    assert tuner.observe(1.0, 1 << 30, 1 << 20, 7) == 1  # another step: it begins again


@case
def a_horizon_that_is_found_by_trying_is_reported_of_each_step_and_of_the_room_in_the_cache():
    from spillway._horizon import Tuner

    kept = 256 << 20  # beside a real GPU's workspaces
    observed = []

    class ObservingTuner(Tuner):
        def observe(self, seconds, free_bytes, unit_bytes, batches):
            observed.append((free_bytes, unit_bytes, batches))
            return super().observe(seconds, free_bytes, unit_bytes, batches)

    net, micro = network(), spillway.microbatches(activation_loading_horizon="auto")
    micro._tuner = ObservingTuner()
    torch.empty(kept, dtype=torch.uint8, device="cuda")
    torch.cuda.reset_peak_memory_stats()
    with Copied() as copied:
        for _ in range(3):
            step(net, micro)
    assert copied.out > 0
    assert len(observed) == 2, observed  # at the begin of each step, of the one before
    used = torch.cuda.max_memory_allocated()
    room = torch.cuda.mem_get_info()[0] + torch.cuda.memory_reserved() - used
    assert room > torch.cuda.mem_get_info()[0] + kept // 2
    assert observed[-1] == (room, UNIT, BATCHES), (observed, room)
