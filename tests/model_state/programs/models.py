# SPDX-License-Identifier: Apache-2.0
"""Kinds of models, each trained for a few steps."""

import copy

import torch
from cases import case, main
from torch import nn
from torch.nn import functional

STEPS = 3


def inputs(*shape):
    return torch.randn(*shape).cuda()


def mlp(width=24, depth=2):
    layers = [nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(depth)]
    return nn.Sequential(*layers, nn.Linear(width, width))


def adamw(model, **options):
    return torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], lr=0.01, **options)


def train(model, batch, optimizer=None, steps=STEPS, each=lambda step: None):
    optimizer = optimizer or adamw(model)
    losses = []
    for step in range(steps):
        each(step)
        loss = model(batch()).float().square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, model, optimizer


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(32, 24)
        self.block = nn.Linear(24, 24)  # used three times
        self.head = nn.Linear(24, 32, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        hidden = self.embedding(tokens)
        for _ in range(3):
            hidden = hidden + self.block(hidden).tanh()
        return self.head(hidden)


@case
def tied_weights_and_a_shared_block():
    return train(Tied().cuda(), lambda: torch.randint(0, 32, (4, 6)).cuda())


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
def buffers_written_in_forward():
    norms = nn.Sequential(nn.Conv2d(3, 300, 3), nn.BatchNorm2d(300), nn.ReLU(), nn.Conv2d(300, 3, 3)).cuda()
    trained = train(norms, lambda: inputs(2, 3, 8, 8))
    return trained, norms.eval()(inputs(2, 3, 8, 8))


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
    from torch.nn.utils import parametrize, parametrizations

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


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = nn.Linear(24, 4)
        self.experts = nn.ModuleList(mlp(depth=1) for _ in range(4))

    def forward(self, x):
        chosen = self.router(x).argmax(-1)
        out = torch.zeros_like(x)
        for index, expert in enumerate(self.experts):
            rows = (chosen == index).nonzero().flatten()
            if len(rows):
                out = out.index_add(0, rows, expert(x[rows]))
        return out + self.router(x).mean()


@case
def experts_that_do_not_run():
    return train(Experts().cuda(), lambda: inputs(3, 24), steps=5)


@case
def recurrent_nets():
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.gru = nn.GRU(24, 24, 2, batch_first=True, bidirectional=True)
            self.lstm = nn.LSTM(48, 24, 2, batch_first=True, proj_size=8)
            self.cell = nn.LSTMCell(8, 24)

        def forward(self, x):
            out = self.lstm(self.gru(x)[0])[0]
            state = None
            for step in range(out.shape[1]):
                state = self.cell(out[:, step], state)
            return state[0]

    model = Recurrent().cuda()
    model.gru.flatten_parameters()
    return train(model, lambda: inputs(2, 5, 24))


@case
def a_transformer():
    model = nn.Transformer(24, 2, 1, 1, 40, batch_first=True).cuda()

    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, x):
            return self.model(x, x)

    return train(Both(), lambda: inputs(2, 5, 24))


@case
def an_ema_copy():
    model = mlp().cuda()
    copied, average = copy.deepcopy(model), torch.optim.swa_utils.AveragedModel(model)
    optimizer = adamw(model)
    losses = []
    for _ in range(STEPS):
        losses.append(train(model, lambda: inputs(4, 24), optimizer, 1)[0])
        average.update_parameters(model)
        with torch.no_grad():
            torch._foreach_lerp_(list(copied.parameters()), list(model.parameters()), 0.1)
    return losses, model, copied, average, copied(inputs(4, 24))


@case
def two_players():
    generator, judge = mlp().cuda(), mlp().cuda()
    first, second = adamw(generator), adamw(judge)
    losses = []
    for _ in range(STEPS):
        made = generator(inputs(4, 24))
        second.zero_grad()
        judged = judge(made.detach()).mean() - judge(inputs(4, 24)).mean()
        judged.backward()
        second.step()
        first.zero_grad()
        made_loss = -judge(made).mean()
        made_loss.backward()
        first.step()
        losses += [judged.item(), made_loss.item()]
    return losses, generator, judge, first, second


@case
def teacher_and_student():
    teacher, student = mlp().cuda().eval(), mlp(depth=1).cuda()
    optimizer = adamw(student)
    losses = []
    for _ in range(STEPS):
        batch = inputs(4, 24)
        with torch.no_grad():
            wanted = teacher(batch)
        loss = functional.mse_loss(student(batch), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, teacher, student, optimizer


@case
def generation_between_steps():
    model = Tied().cuda()
    optimizer = adamw(model)
    seen = []
    for step in range(4):
        seen.append(train(model, lambda: torch.randint(0, 32, (2, 4)).cuda(), optimizer, 1)[0])
        with torch.inference_mode() if step % 2 else torch.no_grad():
            tokens = torch.zeros(2, 1, dtype=torch.long, device="cuda")
            for _ in range(4):
                tokens = torch.cat([tokens, model(tokens)[:, -1:].argmax(-1)], 1)
        seen.append(tokens.tolist())
    return seen, model, optimizer


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
def convolutions_with_channels_last():
    model = nn.Sequential(nn.Conv2d(16, 32, 3), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 16, 3)).cuda()
    model = model.to(memory_format=torch.channels_last)

    def batch():
        return inputs(2, 16, 8, 8).to(memory_format=torch.channels_last)

    return train(model, batch), [each.stride() for each in model.parameters()]


@case
def autocast_with_cached_casts():
    model = Tied().cuda()
    optimizer = adamw(model)
    losses = []
    for _ in range(STEPS):
        with torch.autocast("cuda", torch.bfloat16):
            tokens = torch.randint(0, 32, (4, 6)).cuda()
            loss = model(tokens).square().mean() + model(tokens.flip(0)).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, model, optimizer


@case
def low_precision_parameters():
    return train(mlp(40).cuda().bfloat16(), lambda: inputs(4, 40).bfloat16())


@case
def complex_parameters():
    class Complex(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(16, 16, dtype=torch.complex64))

        def forward(self, x):
            return torch.view_as_real(x.to(torch.complex64) @ self.weight)

    model = Complex().cuda()
    return train(model, lambda: inputs(4, 16))


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
