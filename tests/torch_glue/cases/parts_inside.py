# SPDX-License-Identifier: Apache-2.0
"""What runs inside a part of a model: recomputation, other regions, autocast."""

import functools
import gc

import spillway
import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from cases import case
from cases.function_transforms import TRANSFORMS, make, results
from cases.measure import Copied, same
from cases.parts import WIDTH, batch, layers, train


def wrapped_inside(wrap):
    """A plain model whose parts hold blocks that are wrapped."""

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.norm, self.b = (
                nn.Linear(WIDTH, WIDTH),
                nn.BatchNorm1d(WIDTH),
                nn.Linear(WIDTH, WIDTH),
            )

        def inner(self, x):
            # A weight that is used as it is, not through its module.
            return nn.functional.dropout(self.norm(self.a(x)).sin() @ self.b.weight.t(), 0.2).cos()

        def forward(self, x):
            return x + (wrap(self.inner, x) if wrap else self.inner(x))

    torch.manual_seed(5)
    return nn.Sequential(*(Block() for _ in range(6)))


def in_region(region):
    def wrap(function, x):
        with region():
            return function(x)

    return wrap


@case
def checkpoints_and_regions_inside_a_part_have_its_weights():
    from torch.utils.checkpoint import checkpoint

    wraps = {
        "checkpoint": spillway.checkpoint,
        "offloaded checkpoint": lambda f, x: spillway.checkpoint(f, x, offload_to_cpu=True),
        "nested checkpoint": lambda f, x: spillway.checkpoint(lambda y: spillway.checkpoint(f, y), x),
        "torch": lambda f, x: checkpoint(f, x, use_reentrant=False),
        "nested torch": lambda f, x: checkpoint(
            lambda y: checkpoint(f, y, use_reentrant=False), x, use_reentrant=False
        ),
        "ratio": in_region(lambda: spillway.CPUOffload(offload_ratio=0.5, tag="inside")),
        "all": in_region(lambda: spillway.compat.OffloadActivations(min_offload_size=256)),
        "none": in_region(spillway.compat.NoOpManager),
        "torch's host": in_region(torch.autograd.graph.save_on_cpu),
    }
    for name, wrap in wraps.items():
        plain = train(wrapped_inside(wrap).cuda(), steps=2)
        for checkpoint_parts in (False, True):
            net = spillway.OffloadModel(
                wrapped_inside(wrap), "cuda", num_slices=6, checkpoint_activation=checkpoint_parts
            )
            found = train(net, steps=2)
            assert same(found, plain), (name, checkpoint_parts)


@case
def an_offload_region_inside_a_part_moves_what_it_would_move():
    def copied_by(net):
        before = spillway.stats()["model_state"]["copied_bytes"]
        with Copied() as traffic:
            net(batch()).square().sum().backward()
        return traffic.out - (spillway.stats()["model_state"]["copied_bytes"] - before)

    wrap = in_region(lambda: spillway.CPUOffload(offload_ratio=1, tag="offloaded.inside"))
    plain = copied_by(wrapped_inside(wrap).cuda())
    assert plain > 0 and copied_by(spillway.OffloadModel(wrapped_inside(wrap), "cuda")) == plain


def under_autocast(net, x, dtype=torch.bfloat16):
    with torch.autocast("cuda", dtype=dtype):
        out = net(x)
        loss = out.float().square().sum()
    loss.backward()
    return [out, x.grad, *(p.grad for p in net.parameters() if p.requires_grad)]


@case
def autocast_has_the_bits_of_the_plain_model():
    def make(frozen):
        model = layers(norm=True)
        for layer in list(model)[:frozen]:
            layer[0].weight.requires_grad_(False)
        return model

    for dtype in (torch.bfloat16, torch.float16):
        for frozen in (0, 3):
            expected = under_autocast(make(frozen).cuda(), batch().requires_grad_(), dtype)
            for checkpoint in (False, True):
                net = spillway.OffloadModel(
                    make(frozen), "cuda", num_slices=6, checkpoint_activation=checkpoint
                )
                found = under_autocast(net, batch().requires_grad_(), dtype)
                assert same(found, expected), (dtype, frozen, checkpoint)


@case
def casts_of_weights_go_with_their_part_if_it_runs_again():
    def peak(count, frozen):
        torch.manual_seed(1)
        model = nn.Sequential(*(nn.Linear(512, 512, bias=False) for _ in range(count)))
        model.requires_grad_(not frozen)
        net = spillway.OffloadModel(model, "cuda", num_slices=count, checkpoint_activation=True)
        for _ in range(2):
            gc.collect()
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            under_autocast(net, torch.ones(2, 512, device="cuda", requires_grad=True))
        return torch.cuda.max_memory_allocated() - before

    part = 512 * 512 * 4
    for frozen in (False, True):
        few, many = (peak(count, frozen) for count in (3, 12))
        # Kept, the halves of nine more parts would be there.
        assert few <= 5 * part and many <= few + 2 * part, (frozen, few, many)


@case
def micro_batches_share_a_cast_as_in_a_plain_loop_over_them():
    plain = layers().cuda()
    net = spillway.OffloadModel(layers(), "cuda", num_microbatches=4, num_slices=6)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        out = net(batch())
        pieces = list(batch().chunk(4))
        for layer in plain:
            pieces = [layer(piece) for piece in pieces]
        expected = torch.cat(pieces)
    for one in (out, expected):
        one.float().square().sum().backward()
    assert same([out], [expected])
    assert same([p.grad for p in net.parameters()], [p.grad for p in plain.parameters()])


@case
def checkpoints_and_regions_inside_a_part_work_under_autocast():
    from torch.utils.checkpoint import checkpoint

    for wrap in (
        spillway.checkpoint,
        lambda f, x: checkpoint(f, x, use_reentrant=False),
        in_region(lambda: spillway.compat.OffloadActivations(min_offload_size=256)),
        in_region(torch.autograd.graph.save_on_cpu),
    ):
        net = spillway.OffloadModel(wrapped_inside(wrap), "cuda", num_slices=6)
        torch.manual_seed(0)
        found = under_autocast(net, batch().requires_grad_())
        torch.manual_seed(0)
        expected = under_autocast(wrapped_inside(None).cuda(), batch().requires_grad_())
        assert same(found, expected)


@case
def a_cast_that_was_changed_is_no_cast():
    class Doubles(nn.Linear):
        def forward(self, x):
            weight = self.weight.to(torch.bfloat16)
            weight.mul_(2)
            return (x @ weight.t()).cos()

    def make():
        torch.manual_seed(3)
        return nn.Sequential(*(Doubles(WIDTH, WIDTH, bias=False) for _ in range(3)))

    net = spillway.OffloadModel(make(), "cuda", num_slices=3)
    found = under_autocast(net, batch().requires_grad_())
    assert same(found, under_autocast(make().cuda(), batch().requires_grad_()))


@case
def a_gradient_scaler_has_the_plain_results():

    def run(net):
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
        scaler = torch.amp.GradScaler("cuda", init_scale=128.0)
        seen = []
        for step in range(4):
            with torch.autocast("cuda", dtype=torch.float16):
                loss = net(batch(step)).float().square().mean()
            if step == 1:
                loss = loss * float("inf")  # a step that the scaler leaves out
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            seen += [p.grad.clone() for p in net.parameters()]
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            seen.append(torch.tensor(scaler.get_scale()))
        return [*seen, *(p.detach() for p in net.parameters())]

    net = spillway.OffloadModel(layers(), "cuda")
    assert same(run(net), run(layers().cuda()))


@case
def a_model_in_parts_may_be_inside_and_around():
    def train(around):
        torch.manual_seed(1)
        inner = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(4)]
        if around is None:
            net = nn.Sequential(*inner).cuda()
            call = net
        elif around:
            net = spillway.OffloadModel([spillway.checkpoint_wrapper(one) for one in inner], "cuda")
            call = net
        else:
            net = spillway.OffloadModel(inner, "cuda")
            call = functools.partial(spillway.checkpoint, net)
        x = batch().requires_grad_()
        for _ in range(2):
            call(x * 1).square().sum().backward()
        return [x.grad, *(p.grad for p in net.parameters())]

    plain = train(None)
    assert same(train(True), plain)
    assert same(train(False), plain)


@case
def transforms_of_functions_have_the_plain_results():
    for options in ({}, {"checkpoint_activation": True}):
        for name, transform in TRANSFORMS.items():
            plain = results(lambda net, transform: transform(net), transform)
            net = spillway.OffloadModel(make().cpu(), "cuda", num_slices=2, **options)
            found = [leaf for leaf in tree_leaves(transform(net)) if isinstance(leaf, torch.Tensor)]
            if any(leaf.requires_grad for leaf in found):
                sum(leaf.square().sum() for leaf in found if leaf.requires_grad).backward()
            gradients = [p.grad for p in net.parameters()]
            assert same([leaf.detach() for leaf in found], plain[0]), name
            assert same(gradients, plain[1]), name
