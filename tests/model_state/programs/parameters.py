# SPDX-License-Identifier: Apache-2.0
"""Where parameters and buffers come from, and what replaces them."""

import copy
import pickle

import torch
from cases import case, main, managed_stats
from small_models import STEPS, inputs, mlp, train
from torch import nn


def check_managed(*models):
    """All parameters that are large enough."""
    if managed_stats() is None:
        return
    from spillway._load import glue

    for model in models:
        for each in [*model.parameters(), *model.buffers()]:
            assert each.nbytes < 1024 or glue().manages(each), each.shape


def check_all_managed(*tensors):
    if managed_stats() is None:
        return
    from spillway._load import glue

    assert all(map(glue().manages, tensors))


@case
def modules_that_are_copies_on_the_gpu():
    with torch.device("cuda"):
        layer = nn.TransformerEncoderLayer(32, 2, 64, dropout=0.0, batch_first=True)
        model = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
    again = copy.deepcopy(model)
    loaded = pickle.loads(pickle.dumps(model))
    check_managed(model, again, loaded)
    with torch.no_grad():
        outputs = [each(inputs(2, 4, 32)) for each in (again, loaded)]
    return train(model, lambda: inputs(2, 4, 32)), outputs


@case
def parameters_put_into_the_dictionary_of_a_module():
    model = mlp(40)
    for module in model.modules():
        for name, parameter in module._parameters.items():
            module._parameters[name] = nn.Parameter(parameter.detach().cuda())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    check_managed(model)
    return train(model, lambda: inputs(4, 40), optimizer)


@case
def frozen_weights_put_into_the_dictionary_of_a_module():
    base, adapter = nn.Linear(40, 40), nn.Linear(40, 40)
    base._parameters["weight"] = nn.Parameter(base.weight.detach().cuda(), requires_grad=False)
    base._parameters["bias"] = nn.Parameter(base.bias.detach().cuda(), requires_grad=False)
    adapter._parameters["weight"] = nn.Parameter(adapter.weight.detach().cuda())
    adapter._parameters["bias"] = nn.Parameter(adapter.bias.detach().cuda())
    optimizer = torch.optim.AdamW(adapter.parameters(), lr=0.01)
    check_managed(base, adapter)
    return train(nn.Sequential(base, adapter), lambda: inputs(4, 40), optimizer)


@case
def tied_after_the_model_has_moved():
    model = nn.Sequential(nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 24)).cuda()
    model[2].weight = model[0].weight
    return train(model, lambda: inputs(4, 24))


@case
def frozen_parts():
    model = mlp().cuda()
    model[0].requires_grad_(False)
    return train(model, lambda: inputs(4, 24))


@case
def parameters_frozen_and_unfrozen():
    model = mlp().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

    def flip(step):
        model[0].requires_grad_(step % 2 == 1)

    return train(model, lambda: inputs(4, 24), optimizer, 4, flip)


@case
def a_buffer_of_the_programs_own():
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(24, 24)
            self.register_buffer("seen", torch.zeros(24, 24))
            self.register_buffer("last", torch.zeros(24, 24))

        def forward(self, x):
            self.seen += self.linear.weight.detach()
            self.last = self.linear(x).detach().sum(0) * torch.ones_like(self.seen)
            return self.linear(x) + self.seen.mean(0) + self.last.mean(0)

    return train(Counts().cuda(), lambda: inputs(4, 24))


@case
def data_of_parameters_replaced():
    model = mlp().cuda()
    batch = inputs(4, 24)

    def replace(step):
        if step == 1:
            for each in model.parameters():
                each.data = each.data.clone() * 0.5
        if step == 2:
            model[0][0].weight.data = torch.ones(24, 24, device="cuda")
            model[1][0].weight.data.mul_(2)

    return train(model, lambda: batch, torch.optim.SGD(model.parameters(), 0.01, momentum=0.9), 4, replace)


@case
def tensors_swapped():
    model = mlp().cuda()
    for name, each in list(model[0][0].named_parameters()):
        torch.utils.swap_tensors(each, nn.Parameter(each.detach() * 2))
        assert getattr(model[0][0], name) is each
    first = train(model, lambda: inputs(4, 24))
    # Hooks of the gradient belong to the tensors: torch refuses to swap those whose gradients accumulate.
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        other = mlp().cuda()
        other.half().float()
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)
    return first, train(other, lambda: inputs(4, 24))


@case
def loaded_by_swapping_after_training():
    model, other = mlp().cuda(), mlp()
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        first = train(model, lambda: inputs(4, 24))
        with torch.autocast("cuda", torch.bfloat16):
            second = train(model, lambda: inputs(4, 24))
        model.load_state_dict(other.state_dict())
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)
    return first, second, train(model, lambda: inputs(4, 24))


@case
def parameters_and_states_replaced_by_hand():
    """As where points are added to a scene."""
    points = nn.Parameter(torch.randn(64, 24).cuda())
    optimizer = torch.optim.Adam([points], lr=0.01)
    losses = []
    for step in range(6):
        loss = optimizer.param_groups[0]["params"][0].square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        (old,) = optimizer.param_groups[0]["params"]
        states = optimizer.state.pop(old)
        check_all_managed(old, states["exp_avg"], states["exp_avg_sq"])
        for key in ("exp_avg", "exp_avg_sq"):
            states[key] = torch.cat([states[key], torch.zeros(8, 24).cuda()])
        if step % 2:
            states = {key: each.cpu().clone() for key, each in states.items()}
            states = {key: each if key == "step" else each.cuda() for key, each in states.items()}
        points = nn.Parameter(torch.cat([old.detach(), torch.randn(8, 24).cuda()]))
        optimizer.param_groups[0]["params"][0] = points
        optimizer.state[points] = states
        del old, states
    for key in ("exp_avg", "exp_avg_sq"):
        optimizer.state[points][key] = optimizer.state[points][key] * 2
    points.square().mean().backward()
    optimizer.step()
    check_all_managed(optimizer.state[points]["exp_avg"], optimizer.state[points]["exp_avg_sq"])
    return losses, points, optimizer


@case
def state_assigned_by_load_state_dict():
    model, other = mlp().cuda(), mlp().cuda()
    state = {name: each.clone() for name, each in other.state_dict().items()}
    model.load_state_dict(state, assign=True)
    first = train(model, lambda: inputs(4, 24))
    model.load_state_dict(other.state_dict(), assign=True)
    return first, train(model, lambda: inputs(4, 24)), other


@case
def built_on_meta():
    with torch.device("meta"):
        model = mlp()
    model.to_empty(device="cuda")
    for each in model.parameters():
        nn.init.normal_(each, 0, 0.1)
    return train(model, lambda: inputs(4, 24))


@case
def built_on_the_device():
    with torch.device("cuda"):
        model = mlp()
    return train(model, lambda: inputs(4, 24))


@case
def parametrizations():
    from torch.nn.utils import parametrizations

    model = nn.Sequential(
        parametrizations.weight_norm(nn.Linear(24, 24)),
        parametrizations.spectral_norm(nn.Linear(24, 24)),
        parametrizations.orthogonal(nn.Linear(24, 24)),
    ).cuda()
    return train(model, lambda: inputs(4, 24))


@case
def parametrized_on_the_device():
    from torch.nn.utils import parametrizations, parametrize

    model = mlp().cuda()
    parametrizations.weight_norm(model[0][0])
    trained = train(model, lambda: inputs(4, 24))
    parametrize.remove_parametrizations(model[0][0], "weight")
    return trained, train(model, lambda: inputs(4, 24))


@case
def old_weight_norm():
    model = nn.Sequential(nn.utils.weight_norm(nn.Linear(24, 24)), nn.Linear(24, 24)).cuda()
    return train(model, lambda: inputs(4, 24))


@case
def pruned():
    from torch.nn.utils import prune

    model = mlp().cuda()
    prune.l1_unstructured(model[0][0], "weight", 0.5)
    trained = train(model, lambda: inputs(4, 24))
    prune.remove(model[0][0], "weight")
    return trained, model


class Quantized(nn.Module):
    """A frozen weight of one byte an element, and a low-rank update of it that is trained."""

    def __init__(self, width=40):
        super().__init__()
        weight = torch.randn(width, width)
        self.register_buffer("scale", weight.abs().amax(1, keepdim=True) / 127)
        self.weight = nn.Parameter((weight / self.scale).round().to(torch.int8), requires_grad=False)
        self.down = nn.Parameter(torch.randn(8, width) * 0.1)
        self.up = nn.Parameter(torch.zeros(width, 8))

    def forward(self, x):
        return x @ (self.weight.float() * self.scale).T + x @ self.down.T @ self.up.T


@case
def quantized_frozen_weights():
    model = nn.Sequential(Quantized(), nn.ReLU(), Quantized()).cuda()
    return train(model, lambda: inputs(4, 40))


@case
def merged_updates():
    model = Quantized().cuda()
    trained = train(model, lambda: inputs(4, 40))
    with torch.no_grad():
        model.weight.data = model.weight.float() * model.scale + model.up @ model.down
    return trained, model.weight


@case
def views_of_one_flat_parameter():
    class Flat(nn.Module):
        def __init__(self):
            super().__init__()
            self.flat = nn.Parameter(torch.randn(2 * 24 * 24) * 0.1)

        def forward(self, x):
            first, second = self.flat.view(2, 24, 24).unbind()
            return (x @ first).relu() @ second

    return train(Flat().cuda(), lambda: inputs(4, 24))


@case
def parameters_that_share_a_storage():
    flat = torch.randn(2 * 24 * 24).cuda()
    model = nn.Sequential(nn.Linear(24, 24, bias=False), nn.Linear(24, 24, bias=False))
    model[0].weight = nn.Parameter(flat[: 24 * 24].view(24, 24))
    model[1].weight = nn.Parameter(flat[24 * 24 :].view(24, 24))
    return train(model, lambda: inputs(4, 24)), flat


@case
def gradients_in_one_flat_buffer():
    model = mlp().cuda()
    parameters = list(model.parameters())
    flat = torch.zeros(sum(each.numel() for each in parameters), device="cuda")
    for each, view in zip(parameters, flat.split([each.numel() for each in parameters]), strict=True):
        each.grad = view.view_as(each)
    optimizer = torch.optim.SGD(parameters, 0.01, momentum=0.9)
    losses = []
    for _ in range(STEPS):
        flat.zero_()
        loss = model(inputs(4, 24)).square().mean()
        loss.backward()
        flat.mul_(0.5)
        optimizer.step()
        losses.append(loss.item())
    return losses, flat, model, optimizer


@case
def parameters_in_no_module():
    weight = torch.randn(24, 24, device="cuda", requires_grad=True)
    optimizer = torch.optim.Adam([weight], lr=0.01)
    losses = []
    for _ in range(STEPS):
        loss = (inputs(4, 24) @ weight).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, weight, weight.grad, optimizer


@case
def lazy_modules():
    model = nn.Sequential(nn.LazyLinear(24), nn.ReLU(), nn.LazyLinear(24)).cuda()
    model(inputs(4, 24))
    return train(model, lambda: inputs(4, 24))


main()
