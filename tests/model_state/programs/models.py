# SPDX-License-Identifier: Apache-2.0
"""Kinds of models, each trained for a few steps."""

import copy

import torch
from cases import case, main
from small_models import STEPS, Tied, adamw, inputs, minimize, mlp, train
from torch import nn
from torch.nn import functional


@case
def tied_weights_and_a_shared_block():
    return train(Tied().cuda(), lambda: torch.randint(0, 32, (4, 6)).cuda())


@case
def buffers_written_in_forward():
    norms = nn.Sequential(nn.Conv2d(3, 300, 3), nn.BatchNorm2d(300), nn.ReLU(), nn.Conv2d(300, 3, 3)).cuda()
    trained = train(norms, lambda: inputs(2, 3, 8, 8))
    return trained, norms.eval()(inputs(2, 3, 8, 8))


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

    def loss_of(_):
        with torch.autocast("cuda", torch.bfloat16):
            tokens = torch.randint(0, 32, (4, 6)).cuda()
            return model(tokens).square().mean() + model(tokens.flip(0)).abs().mean()

    return minimize(loss_of, optimizer), model, optimizer


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


main()
