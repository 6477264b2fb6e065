# SPDX-License-Identifier: Apache-2.0
"""Tensors that are computed again instead of kept."""

import contextlib
import functools
import threading

import spillway
import torch
from torch import nn
from torch.nn import functional as F

from cases import case
from cases.measure import gradients_of_gradients, last, plenty, same, same_bits

TAG = "rebuild"


def left():
    """Bytes that the last step left to be computed again, and those that were."""
    step = last(TAG)
    return step["left_to_rebuild_bytes"], step["rebuilt_bytes"]


def random(*shape, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to("cuda", dtype)


def gradients(function, inputs, region):
    """Of the inputs, and the loss. Each pass of both kinds begins with the same random numbers."""
    torch.manual_seed(7)
    inputs = [x.detach().requires_grad_() for x in inputs]
    factor = random(1, seed=9).requires_grad_()
    with region:
        loss = (function(*inputs) * factor).sum()  # the product saves the result
    loss.backward()
    return [loss.detach(), factor.grad, *(x.grad for x in inputs)]


def keeping():
    return spillway.CPUOffload(0, tag="kept")


# Each ends with the operator whose rule it is about; what that needs is saved by somebody.
RULES = {
    "silu": lambda x, w: F.silu(x * 1),
    "gelu": lambda x, w: F.gelu(x * 1),
    "gelu_of_tanh": lambda x, w: F.gelu(x * 1, approximate="tanh"),
    "mish": lambda x, w: F.mish(x * 1),
    "hardswish": lambda x, w: F.hardswish(x * 1),
    "hardsigmoid": lambda x, w: F.hardsigmoid(x * 1),
    "hardtanh": lambda x, w: F.hardtanh(x * 1, -0.5, 0.25),
    "leaky_relu": lambda x, w: F.leaky_relu(x * 1, 0.2),
    "elu": lambda x, w: F.elu(x * 1, 0.7),
    "softplus": lambda x, w: F.softplus(x * 1, 2, 5),
    "sine": lambda x, w: (x * 1).sin(),
    "cosine": lambda x, w: (x * 1).cos(),
    "glu": lambda x, w: F.glu(x * 1),
    "swiglu": lambda x, w: F.silu(x @ w) * (x @ w),
    "quotient": lambda x, w: (x @ w) / (w @ x).exp(),
    "power": lambda x, w: (x @ w).pow(2),
    "layer_norm": lambda x, w: F.layer_norm(x @ w, (64,), w[0], w[1], eps=1e-3),
    "layer_norm_without_weights": lambda x, w: F.layer_norm(x @ w, (64,)),
    "rms_norm": lambda x, w: F.rms_norm(x @ w, (64,), w[0], eps=1e-3),
    "rms_norm_without_eps": lambda x, w: F.rms_norm(x @ w, (64,), w[0]),
    "group_norm": lambda x, w: F.group_norm((x @ w).view(8, 16, 4, 8), 4, w[0, :16], w[1, :16], eps=1e-3),
    "batch_norm": lambda x, w: F.batch_norm(x @ w, None, None, w[0], w[1], training=True, eps=1e-3),
    "dropout": lambda x, w: F.dropout(F.silu(x @ w), 0.3),
    "relu_of_layer_norm": lambda x, w: F.relu(F.layer_norm(x @ w, (64,))),
    "relu_in_place": lambda x, w: F.layer_norm(x @ w, (64,)).relu_(),
    "relu_of_a_sum": lambda x, w: (F.layer_norm(x @ w, (64,)) + F.layer_norm(w @ x, (64,))).relu(),
    "relu_of_a_sum_in_place": lambda x, w: F.layer_norm(x @ w, (64,)).add_(F.silu(w @ x)).relu_(),
    "view": lambda x, w: F.silu(x @ w).view(16, 256),
    "transposed": lambda x, w: F.silu(x @ w).t(),
    "part": lambda x, w: F.silu(x @ w)[:, 8:24],
    "max_pool": lambda x, w: F.max_pool2d((x @ w).view(4, 4, 16, 16), 2),
}


def rule_gives_the_same_bits(name):
    function, inputs = RULES[name], [random(64, 64), random(64, 64, seed=1)]
    expected = gradients(function, inputs, keeping())
    kept = last("kept")["movable_bytes"]
    for _ in range(2):
        actual = gradients(function, inputs, spillway.rebuild())
        assert same(expected, actual)
        let_go, made = left()
        assert 0 < let_go < kept, (let_go, kept)
        assert made == let_go, (let_go, made)


for rule in RULES:
    claim = functools.partial(rule_gives_the_same_bits, rule)
    claim.__name__ = f"{rule}_is_computed_again_bit_for_bit"
    case(claim)


class LlamaBlock(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.before, self.between = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.gate, self.up = (nn.Linear(width, hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        q, k, v = (
            part.unflatten(-1, (4, -1)).transpose(1, 2) for part in self.qkv(self.before(x)).chunk(3, -1)
        )
        attention = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attention.transpose(1, 2).flatten(2))
        y = self.between(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class GptBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = (
            part.unflatten(-1, (4, -1)).transpose(1, 2) for part in self.qkv(self.before(x)).chunk(3, -1)
        )
        attention = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + F.dropout(self.out(attention.transpose(1, 2).flatten(2)), 0.1, self.training)
        return x + F.dropout(self.down(F.gelu(self.up(self.between(x)))), 0.1, self.training)


class Bottleneck(nn.Module):
    def __init__(self, channels):
        super().__init__()
        inside = channels // 4
        self.first, self.a = nn.Conv2d(channels, inside, 1, bias=False), nn.BatchNorm2d(inside)
        self.second, self.b = nn.Conv2d(inside, inside, 3, padding=1, bias=False), nn.BatchNorm2d(inside)
        self.third, self.c = nn.Conv2d(inside, channels, 1, bias=False), nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        y = self.relu(self.b(self.second(self.relu(self.a(self.first(x))))))
        return self.relu(self.c(self.third(y)) + x)


class UnetBlock(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.a, self.b = nn.GroupNorm(8, channels), nn.GroupNorm(8, channels)
        self.first, self.second = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))

    def forward(self, x):
        return x + self.second(F.silu(self.b(self.first(F.silu(self.a(x))))))


def stem(blocks, shape):
    """Blocks behind a layer whose result they alone use."""
    if len(shape) == 4:
        return nn.Sequential(nn.Conv2d(shape[1], shape[1], 3, padding=1), *blocks), shape
    return nn.Sequential(nn.Linear(shape[-1], shape[-1]), *blocks), shape


MODELS = {
    "llama": (lambda: stem([LlamaBlock(64, 224) for _ in range(3)], (2, 32, 64)), 0.38),
    "gpt": (lambda: stem([GptBlock(64) for _ in range(3)], (2, 32, 64)), 0.37),
    "resnet": (lambda: stem([Bottleneck(32) for _ in range(8)], (4, 32, 8, 8)), 0.35),
    "unet": (lambda: stem([UnetBlock(16) for _ in range(4)], (4, 16, 8, 8)), 0.5),
}


def trained(name, region, steps, dtype=None):
    """Losses, parameters and buffers after so many steps, and the share of bytes that were let go."""
    torch.manual_seed(3)
    net, shape = MODELS[name][0]()
    net = net.cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        with region(), torch.autocast("cuda", dtype or torch.bfloat16, enabled=dtype is not None):
            loss = net(random(*shape, seed=step)).float().square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return [*losses, *net.state_dict().values()]


def model_trains_alike(name):
    for dtype in (None, torch.bfloat16):
        expected = trained(name, keeping, 5, dtype)
        kept = last("kept")["movable_bytes"]
        assert same(expected, trained(name, spillway.rebuild, 5, dtype))
        let_go, made = left()
        assert let_go >= MODELS[name][1] * kept or dtype, (let_go, kept)
        assert made >= let_go, (let_go, made)


for model in MODELS:
    claim = functools.partial(model_trains_alike, model)
    claim.__name__ = f"{model}_trains_alike_with_its_share_of_bytes_computed_again"
    case(claim)


@case
def peak_memory_falls_by_what_is_computed_again():
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

    difference = peak(keeping()) - peak(spillway.rebuild())
    # The last result is in no graph but as that of sum, which saves nothing.
    assert difference == 7 * 512 * 256 * 4, difference


@case
def consumers_share_what_is_computed_again():
    x = random(64, 64).requires_grad_()
    weights = [random(64, 64, seed=i).requires_grad_() for i in range(3)]
    with spillway.rebuild():
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

    assert same(run(keeping()), run(spillway.rebuild()))
    assert left()[1] > 0


@case
def whoever_keeps_a_result_is_given_it():
    x, w = random(64, 64).requires_grad_(), random(64, 64, seed=1).requires_grad_()
    with spillway.rebuild():
        y = F.silu(x)
        loss = (y @ w).sum()
    loss.backward()
    assert left() == (64 * 64 * 4, 0)
    assert same_bits(w.grad, y.t() @ torch.ones(64, 64, device="cuda"))


@case
def a_result_that_is_edited_later_raises():
    x, w = random(64, 64).requires_grad_(), random(64, 64, seed=1).requires_grad_()
    with spillway.rebuild():
        y = F.silu(x)
        loss = (y @ w).sum()
    y.detach().add_(1)
    try:
        loss.backward()
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error), error
    else:
        raise AssertionError("the edit went unnoticed")


@case
def what_is_computed_from_an_edited_input_raises():
    w = random(64, 64, seed=1).requires_grad_()
    x = random(64, 64).requires_grad_()
    with spillway.rebuild():
        h = x * 1
        loss = (F.silu(h) @ w).sum()
    h.detach().add_(1)
    try:
        torch.autograd.grad(loss, [w])
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error), error
    else:
        raise AssertionError("the edit went unnoticed")


@case
def a_result_that_was_edited_before_it_was_saved_is_kept():
    def run(region):
        x, w = random(64, 64).requires_grad_(), random(64, 64, seed=1).requires_grad_()
        with region:
            y = F.silu(x)
            with torch.no_grad():
                y.clamp_(max=0.5)
            loss = (y @ w).sum()
            del y
        loss.backward()
        return [x.grad, w.grad]

    assert same(run(keeping()), run(spillway.rebuild()))
    assert left() == (0, 0)


@case
def a_result_that_was_edited_between_two_saves_is_kept_for_the_second():
    def run(region):
        x = random(64, 64).requires_grad_()
        w = random(64, 64, seed=1).requires_grad_()
        with region:
            y = F.layer_norm(x, (64,)).relu_()
            with torch.no_grad():
                y.mul_(2)
            loss = (y @ w).sum()
            del y
        return torch.autograd.grad(loss, [w])

    assert same(run(keeping()), run(spillway.rebuild()))


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

    assert same(run(keeping()), run(spillway.rebuild()))


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

    assert same(run(keeping()), run(spillway.rebuild()))
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

    assert same(run(keeping()), run(spillway.rebuild()))


@case
def what_cannot_be_computed_again_moves_as_the_region_around_says():
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
        (spillway.CPUOffload(1, tag="moved"), spillway.rebuild()),
        (spillway.rebuild(), spillway.CPUOffload(1, tag="moved")),
    ):
        assert same(plain, run(*regions))
        step = last("moved")
        # What comes back serves the operator that runs again and its own backward pass.
        assert step["fetched_bytes"] == step["moved_bytes"] > 0, step
        assert step["rebuilt_bytes"] == step["left_to_rebuild_bytes"] > 0, step


@case
def nothing_is_left_behind():
    x, w = random(64, 64).requires_grad_(), random(64, 64, seed=1).requires_grad_()

    def step(ends):
        with spillway.rebuild():
            loss = (F.dropout(F.silu(x @ w), 0.2) @ w).square().sum()
        if ends:
            loss.backward()
            x.grad = w.grad = None

    step(True)
    before = torch.cuda.memory_allocated(), spillway.stats()["live_handles"]
    for number in range(20):
        step(number % 2 == 0)
    spillway.step()
    assert (torch.cuda.memory_allocated(), spillway.stats()["live_handles"]) == before


@case
def a_long_chain_keeps_every_fourth_tensor():
    x = random(64, 64).requires_grad_()
    with spillway.rebuild():
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
def what_was_saved_outside_the_region_counts_as_it_was_then():
    def run(region):
        h = random(64, 64).requires_grad_() * 1
        w = random(64, 64, seed=1).requires_grad_()
        y = F.silu(h)
        with torch.no_grad():
            h.add_(1)
        with region:
            loss = (y @ w).sum()
            del y
        return torch.autograd.grad(loss, [w])

    assert same(run(keeping()), run(spillway.rebuild()))


@case
def a_result_whose_node_was_released_and_that_changed_since_is_kept():
    def run(region):
        x, w = random(64, 64).requires_grad_(), random(64, 64, seed=1).requires_grad_()
        with region:
            h = F.layer_norm(x, (64,))
            y = F.relu(h)
            (grad,) = torch.autograd.grad(y.sum(), [h])  # releases what relu saved, and nothing else
            with torch.no_grad():
                y.mul_(2)
            loss = (y @ w).sum()
            del y
        return [grad, *torch.autograd.grad(loss, [w])]

    assert same(run(keeping()), run(spillway.rebuild()))


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

    assert same(run(keeping()), run(spillway.rebuild()))
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

    assert same(run(keeping()), run(spillway.rebuild()))
    assert left() == (256 * 256 * 4, 2 * 256 * 256 * 4), left()


@case
def threads_may_want_the_same_result():
    x = random(64, 64).requires_grad_()
    weights = [random(64, 64, seed=i).requires_grad_() for i in range(4)]
    with spillway.rebuild():
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
def a_step_of_the_optimizer_between_the_passes_raises_where_a_weight_is_needed():
    norm, out = nn.LayerNorm(64).cuda(), nn.Linear(64, 64).cuda()
    with spillway.rebuild():
        loss = out(norm(random(8, 64))).sum()
    with torch.no_grad():
        norm.weight.add_(1)
    try:
        torch.autograd.grad(loss, [out.weight])
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error), error
    else:
        raise AssertionError("the edit went unnoticed")


@case
def no_region_is_open_behind_an_exception():
    try:
        with spillway.rebuild():
            raise KeyError("inside")
    except KeyError:
        pass
    x, w = random(64, 64).requires_grad_(), random(64, 64, seed=1).requires_grad_()
    before = torch.cuda.memory_allocated()
    loss = (F.silu(x) @ w).sum()
    assert torch.cuda.memory_allocated() - before >= 64 * 64 * 4
    assert not torch._C._dispatch_tls_is_dispatch_key_included("TESTING_ONLY_GenericMode")
    del loss


@case
def what_was_made_again_goes_when_all_have_had_it():
    x, w = random(64, 64).requires_grad_(), random(64, 64, seed=1).requires_grad_()
    with spillway.rebuild():
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
            inputs = [x + number for number in range(7)]
            y = F.layer_norm(inputs[0], (64,))
            for each in inputs[1:]:
                y = y + F.layer_norm(each, (64,))
            loss = (F.relu(y) @ w).sum()
            del y, inputs, each
        return torch.autograd.grad(loss, [x, w])

    assert same(run(keeping()), run(spillway.rebuild()))
    assert left() == (0, 0), left()


def edited(function):
    """Gradients of a function that edits what no node has saved, plain and in a region that rebuilds."""

    def run(region):
        x, w = random(64, 64).requires_grad_(), random(64, 64, seed=1).requires_grad_()
        with region:
            loss = (function(x, x @ w).float() @ w).sum()
        return torch.autograd.grad(loss, [x, w])

    assert same(run(keeping()), run(spillway.rebuild()))


@case
def an_edit_between_two_operators_is_not_lost():
    def before_relu(x, y):
        h = F.layer_norm(y, (64,))
        with torch.no_grad():
            h.mul_(2)
        return h.relu_()

    def before_a_sum(x, y):
        h = F.layer_norm(y, (64,))
        with torch.no_grad():
            h[:, :8] = 0
        return (h + F.layer_norm(x, (64,))).relu()

    def after_a_sum(x, y):
        h = F.layer_norm(y, (64,)) + F.layer_norm(x, (64,))
        h.detach().mul_(2)
        return h.relu()

    def before_it_is_negated(x, y):
        h = F.silu(y)
        with torch.no_grad():
            h.clamp_(max=0.5)
        return -h

    for function in (before_relu, before_a_sum, after_a_sum, before_it_is_negated):
        edited(function)


@case
def sums_of_two_types_are_as_they_were():
    def in_place(x, y):
        h = F.layer_norm(y.bfloat16(), (64,))
        h += F.layer_norm(x, (64,))
        return h.relu_()

    def in_the_wider_type(x, y):
        return (F.layer_norm(y.bfloat16(), (64,)) + F.layer_norm(x, (64,))).relu()

    for function in (in_place, in_the_wider_type):
        edited(function)


@case
def batch_norms_of_all_kinds_have_their_bits():
    kinds = [(True, True), (False, True), (True, False), (False, False)]
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        for affine, tracks in kinds:
            for train in (True, False):

                def run(region, dtype=dtype, affine=affine, tracks=tracks, train=train):
                    norm = nn.BatchNorm1d(64, affine=affine, track_running_stats=tracks)
                    norm = norm.cuda().to(dtype).train(train)
                    x = random(32, 64, dtype=dtype).requires_grad_()
                    w = random(64, 64, dtype=dtype, seed=1).requires_grad_()
                    with region:
                        loss = (norm(x * 1) @ w).sum()
                    norm.train()(x.detach() + 3)  # moves the running statistics
                    return [*torch.autograd.grad(loss, [x, w]), *norm.buffers()]

                assert same(run(keeping()), run(spillway.rebuild())), (dtype, affine, tracks, train)


@case
def what_a_node_saved_and_was_edited_before_the_recipe_is_not_used():
    def run(region):
        norm, w = nn.LayerNorm(64).cuda(), random(64, 64, seed=1).requires_grad_()
        with region:
            y = norm(random(8, 64))
            with torch.no_grad():
                norm.weight.mul_(2)
            loss = (y @ w).sum()
            del y
        return torch.autograd.grad(loss, [w])

    assert same(run(keeping()), run(spillway.rebuild()))


@case
def functions_are_mapped_as_without_the_region():
    x = random(2, 16, 4, 4)

    def norm(bias):
        return F.group_norm(x, 4, bias, bias)

    with spillway.rebuild():
        mapped = torch.vmap(norm)(random(3, 16, seed=1))
    assert same([mapped], [torch.vmap(norm)(random(3, 16, seed=1))])

    def run(region):
        torch.manual_seed(3)
        x, w = random(64, 64).requires_grad_(), random(64, 64, seed=1).requires_grad_()
        with region:
            y = F.dropout(F.silu(x @ w), 0.2) @ w
        return torch.autograd.grad(y, [x, w], random(3, 64, 64, seed=2), is_grads_batched=True)

    assert same(run(keeping()), run(spillway.rebuild()))


def blocks_trained(around, change=lambda block: block):
    """Parameters after three steps of three micro-batches each."""
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(64, 64), *[change(LlamaBlock(64, 224)) for _ in range(3)]).cuda()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    for step in range(3):
        with around():
            losses = [net(random(2, 16, 64, seed=10 * step + i)).square().mean() for i in range(3)]
            for loss in losses:
                loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return list(net.state_dict().values())


@contextlib.contextmanager
def both(outer, inner):
    with outer, inner:
        yield


@case
def other_ways_around_and_inside_have_the_same_bits():
    plain = blocks_trained(keeping)
    ways = {
        "manager": lambda: spillway.OffloadActivations(),
        "micro-batches": lambda: spillway.microbatches(activation_loading_horizon=1),
        "budget": lambda: spillway.offload(budget=plenty()),
    }
    for name, way in ways.items():
        assert same(plain, blocks_trained(lambda way=way: both(way(), spillway.rebuild()))), name
        assert same(plain, blocks_trained(lambda way=way: both(spillway.rebuild(), way()))), name

    def checkpointed(block):
        return spillway.checkpoint_wrapper(block, offload_to_cpu=True)

    # The wrapper's name is not in its keys, so the lists compare.
    assert same(plain, blocks_trained(spillway.rebuild, checkpointed))
