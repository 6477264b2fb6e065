# SPDX-License-Identifier: Apache-2.0
"""Transforms of torch.func have plain's results around, inside and across regions and checkpoints."""

import spillway
import torch
from torch import func, nn
from torch.utils._pytree import tree_leaves

from cases import case
from cases.measure import plenty, same

WIDTH, ROWS = 16, 8


def make():
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(WIDTH, 64), nn.Tanh(), nn.LayerNorm(64), nn.Linear(64, WIDTH)).cuda()


def rows():
    torch.manual_seed(3)
    return torch.randn(ROWS, WIDTH, device="cuda")


def of_parameters(net, transform):
    """`transform` of a function of the parameters, by functional_call."""
    parameters = {name: p.detach() for name, p in net.named_parameters()}

    def loss(parameters, x):
        return func.functional_call(net, parameters, (x,)).square().sum()

    return transform(loss)(parameters, rows())


def both(f, x):
    return func.jvp(f, (x,), (torch.ones_like(x),))


def pulled(f, x):
    result, back = func.vjp(f, x)
    return result, back(torch.ones_like(result))


@spillway.recomputable(cheap=True)
class Square(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x.square()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs, output)

    @staticmethod
    def backward(ctx, grad):
        return 2 * grad * ctx.saved_tensors[0]


#: What is made of a module: tensors.
TRANSFORMS = {
    "vmap": lambda net: func.vmap(net)(rows()),
    "vmap without gradients": lambda net: torch.no_grad()(func.vmap(net))(rows()),
    "grad": lambda net: func.grad(lambda x: net(x).square().sum())(rows()),
    "grad_and_value": lambda net: func.grad_and_value(lambda x: net(x).square().sum())(rows()),
    "vjp": lambda net: pulled(net, rows()),
    "jvp": lambda net: both(net, rows()),
    "jacrev": lambda net: func.jacrev(net)(rows()[0]),
    "jacfwd": lambda net: func.jacfwd(net)(rows()[0]),
    "hessian": lambda net: func.hessian(lambda x: net(x).square().sum())(rows()[0]),
    "gradients of each row": lambda net: func.vmap(func.grad(lambda x: net(x).square().sum()))(rows()),
    "a function of autograd": lambda net: func.grad(lambda x: Square.apply(net(x)).sum())(rows()),
    "functional_call": lambda net: of_parameters(net, func.grad),
    "functional_call of each row": lambda net: of_parameters(
        net, lambda loss: func.vmap(func.grad(loss), in_dims=(None, 0))
    ),
}


def offloaded():
    return spillway.compat.OffloadActivations(min_offload_size=0)


def in_region(region):
    def way(net, transform):
        with region():
            return transform(net)

    return way


def region_inside(region):
    def way(net, transform):
        forward = net.forward

        def inside(x):
            with region():
                return forward(x)

        net.forward = inside
        return transform(net)

    return way


def wrapped(**options):
    def way(net, transform):
        for layer in net:
            spillway.checkpoint_wrapper(layer, **options)
        return transform(spillway.checkpoint_wrapper(net, **options))

    return way


WAYS = {
    "offloaded": in_region(offloaded),
    "recomputed": in_region(spillway.recompute),
    "in a budget": in_region(lambda: spillway.offload(budget=plenty(), tag="transformed")),
    "offloaded inside": region_inside(offloaded),
    "recomputed inside": region_inside(spillway.recompute),
    "kept inside": region_inside(spillway.compat.NoOpManager),
    "tagged inside": region_inside(lambda: spillway.tag("inside")),
    "checkpointed": wrapped(),
    "checkpointed on the host": wrapped(offload_to_cpu=True),
}


def results(way, transform):
    """Of a transform, and the parameters' gradients of their sum where there are any."""
    net = make()
    found = [leaf for leaf in tree_leaves(way(net, transform)) if isinstance(leaf, torch.Tensor)]
    trained = [leaf for leaf in found if leaf.requires_grad]
    if trained:
        sum(leaf.square().sum() for leaf in trained).backward()
    return [leaf.detach() for leaf in found], [p.grad for p in net.parameters()]


@case
def transforms_have_plains_results_in_regions_and_checkpoints():
    for name, transform in TRANSFORMS.items():
        plain = results(lambda net, transform: transform(net), transform)
        for way in WAYS:
            try:
                ours = results(WAYS[way], transform)
            except RuntimeError as error:
                raise AssertionError(f"{name}, {way}: {error}") from error
            assert all(same(a, b) for a, b in zip(ours, plain, strict=True)), (name, way)


@case
def a_transform_inside_a_checkpointed_function_has_plains_gradients():
    def slopes(net):
        return func.vmap(func.grad(lambda x: net(x).square().sum()))

    gradients = []
    for call in (lambda f, x: f(x), spillway.checkpoint):
        net, x = make(), rows().requires_grad_()
        call(slopes(net), x * 1).square().sum().backward()
        gradients.append([x.grad, *(p.grad for p in net.parameters())])
    assert same(*gradients)
