# SPDX-License-Identifier: Apache-2.0
"""Derivatives other than one backward pass: torch.func, double backward, autograd functions."""

import torch
from cases import case, main
from small_models import STEPS, adamw, inputs, minimize
from torch import nn
from torch.func import functional_call, grad, grad_and_value, jacrev, jvp, stack_module_state, vmap
from torch.utils._python_dispatch import TorchDispatchMode


def net():
    return nn.Sequential(nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 24)).cuda()


class PassOn(TorchDispatchMode):
    """Runs each operator from Python, as a flop counter or a compiled graph does."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


@case
def operators_that_python_runs():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(32, 24)).cuda().bfloat16()
    average = [torch.zeros_like(each, dtype=torch.float32) for each in model.parameters()]
    losses = []
    with PassOn():
        for _ in range(STEPS):
            loss = model(inputs(2, 3, 4, 4).bfloat16()).float().square().mean()
            loss.backward()
            losses.append(loss.detach())
            with torch.no_grad():
                for each, kept in zip(model.parameters(), average, strict=True):
                    kept.lerp_(each.float(), 0.5)
                    each.copy_(kept - 0.1 * each.grad)
            model.zero_grad()
        modes = [each.mode().values for each in model.parameters()]
    return losses, model, average, modes


@case
def functional_calls():
    model = net()
    optimizer = adamw(model)

    def loss_of(_):
        scaled = {name: each * 1.5 for name, each in model.named_parameters()}
        return functional_call(model, scaled, (inputs(4, 24),)).square().mean()

    return minimize(loss_of, optimizer), model, optimizer


@case
def grad_of_a_function():
    model = net()
    parameters = dict(model.named_parameters())
    seen = []
    for _ in range(STEPS):
        batch = inputs(4, 24)

        def loss(values, batch=batch):
            return functional_call(model, values, (batch,)).square().mean()

        gradients, value = grad_and_value(loss)(parameters)
        seen += [value, gradients]
        with torch.no_grad():
            for name, each in parameters.items():
                each -= 0.1 * gradients[name]
    return seen, model


@case
def gradients_of_each_sample():
    model = net()
    parameters = {name: each.detach() for name, each in model.named_parameters()}

    def loss(values, sample):
        return functional_call(model, values, (sample.unsqueeze(0),)).square().mean()

    return vmap(grad(loss), in_dims=(None, 0))(parameters, inputs(4, 24)), model


@case
def an_ensemble():
    models = [net() for _ in range(3)]
    parameters, buffers = stack_module_state(models)

    def call(values, held, x):
        return functional_call(models[0], (values, held), (x,))

    return vmap(call, in_dims=(0, 0, None))(parameters, buffers, inputs(4, 24)), models


@case
def jacobians():
    model = net()
    x = inputs(24)
    return jacrev(model)(x), jvp(model, (x,), (torch.ones_like(x),)), model


@case
def forward_mode():
    model = net()
    values = dict(model.named_parameters())
    directions = {name: torch.ones_like(each) for name, each in values.items()}
    x = inputs(4, 24)
    return jvp(lambda given: functional_call(model, given, (x,)), (values,), (directions,)), model


@case
def double_backward():
    model = net()
    optimizer = adamw(model)

    def loss_of(_):
        x = inputs(4, 24).requires_grad_()
        out = model(x).square().mean()
        (slope,) = torch.autograd.grad(out, x, create_graph=True)
        return out + (slope.norm() - 1).square()

    return minimize(loss_of, optimizer), model, optimizer


@case
def a_step_of_gradient_descent_differentiated():
    model = net()
    outer = torch.optim.Adam(model.parameters(), lr=0.01)

    def loss_of(_):
        values = dict(model.named_parameters())
        inner = functional_call(model, values, (inputs(4, 24),)).square().mean()
        slopes = torch.autograd.grad(inner, list(values.values()), create_graph=True)
        stepped = {
            name: each - 0.1 * slope for (name, each), slope in zip(values.items(), slopes, strict=True)
        }
        return functional_call(model, stepped, (inputs(4, 24),)).square().mean()

    return minimize(loss_of, outer), model, outer


@case
def gradients_kept_by_create_graph():
    model = net()
    loss = model(inputs(4, 24)).square().mean()
    loss.backward(create_graph=True)
    penalty = sum(each.grad.square().sum() for each in model.parameters())
    penalty.backward()
    result = [each.grad.clone() for each in model.parameters()], model
    for each in model.parameters():
        each.grad = None
    return result


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight.T

    @staticmethod
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensors
        return gradient @ weight, gradient.T @ x


@case
def an_autograd_function():
    model = net()
    optimizer = adamw(model)

    def loss_of(_):
        return Scaled.apply(Scaled.apply(inputs(4, 24), model[0].weight), model[2].weight).square().mean()

    return minimize(loss_of, optimizer), model, optimizer


@case
def hessian_vector_products():
    model = net()
    parameters = list(model.parameters())
    loss = model(inputs(4, 24)).square().mean()
    slopes = torch.autograd.grad(loss, parameters, create_graph=True)
    product = sum((slope * each.detach()).sum() for slope, each in zip(slopes, parameters, strict=True))
    return torch.autograd.grad(product, parameters), model


@case
def a_jit_script():
    torch._C._jit_set_texpr_fuser_enabled(False)  # the emulated GPU compiles no kernels
    model = torch.jit.script(net())
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    return minimize(lambda _: model(inputs(4, 24)).square().mean(), optimizer), model


main()
