# SPDX-License-Identifier: Apache-2.0
"""Training on the emulated GPU gives the bits of a CPU run: memory, views, autograd, optimizers are right."""

import pytest
import torch
import torch.nn.functional as F
from emulated_models import GPT, ConvNet, Encoder, fingerprint, fit, fit_language_model
from torch import nn

ADAMW = {"default": {}, "foreach": {"foreach": True}, "fused": {"fused": True}, "loop": {"foreach": False}}


@pytest.mark.parametrize("model", [GPT, Encoder])
@pytest.mark.parametrize("adamw", ADAMW.values(), ids=ADAMW.keys())
def test_language_models_equal_a_cpu_run(model, adamw):
    there = fit_language_model(model, "cuda", **adamw)
    assert there == fit_language_model(model, "cpu", **adamw)
    assert there["losses"][-1] < there["losses"][0]


def fit_conv_net(device, memory_format):
    torch.manual_seed(0)
    model = ConvNet().to(device, memory_format=memory_format)
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(8, 3, 16, 16, generator=generator).to(device).contiguous(memory_format=memory_format)
    labels = torch.randint(0, 10, (8,), generator=generator).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    return fit(model, optimizer, lambda model: F.cross_entropy(model(images), labels))


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_convolutions_and_batch_norm_equal_a_cpu_run(memory_format):
    assert fit_conv_net("cuda", memory_format) == fit_conv_net("cpu", memory_format)


def test_channels_last_stays_channels_last():
    images = torch.randn(2, 3, 8, 8, device="cuda").contiguous(memory_format=torch.channels_last)
    layer = nn.Conv2d(3, 4, 3).cuda().to(memory_format=torch.channels_last)
    assert layer(images).is_contiguous(memory_format=torch.channels_last)


def fit_autocast(device):
    torch.manual_seed(0)
    # Only layers that autocast treats alike on both devices.
    model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16)).to(device)
    inputs = torch.randn(8, 16, generator=torch.Generator().manual_seed(1)).to(device)

    def loss_of(model):
        with torch.autocast(device, dtype=torch.bfloat16):
            outputs = model(inputs)
        assert outputs.dtype == torch.bfloat16
        return F.mse_loss(outputs.float(), -inputs)

    return fit(model, torch.optim.AdamW(model.parameters(), lr=1e-2), loss_of)


def test_autocast_equals_a_cpu_run():
    assert fit_autocast("cuda") == fit_autocast("cpu")


def test_grad_scaler_backs_off_and_trains_on():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler("cuda", init_scale=2.0**24)
    inputs = torch.randn(8, 16, device="cuda")
    losses, scales = [], []
    for _ in range(12):
        with torch.autocast("cuda", dtype=torch.float16):
            loss = F.mse_loss(model(inputs).float(), -inputs)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
        scales.append(scaler.get_scale())
    assert scales[-1] < 2.0**24
    assert losses[-1] < losses[0]


def fit_recurrent(cell, device):
    torch.manual_seed(0)
    # Without biases: the CPU adds them inside its product, the fused cells after it; that rounds differently.
    model = cell(8, 16, bias=False).to(device)
    inputs = torch.randn(6, 4, 8, generator=torch.Generator().manual_seed(1)).to(device)

    def loss_of(model):
        state = None
        for step in inputs:
            state = model(step, state)
        return (state[0] if isinstance(state, tuple) else state).square().mean()

    return fit(model, torch.optim.SGD(model.parameters(), lr=0.1), loss_of)


@pytest.mark.parametrize("cell", [nn.LSTMCell, nn.GRUCell, nn.RNNCell])
def test_recurrent_cells_equal_a_cpu_run(cell):
    assert fit_recurrent(cell, "cuda") == fit_recurrent(cell, "cpu")


@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU])
def test_recurrent_layers_train(layer):
    torch.manual_seed(0)
    model = layer(8, 16, 2, batch_first=True).cuda()
    inputs = torch.randn(4, 6, 8, device="cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    losses = fit(model, optimizer, lambda model: model(inputs)[0].square().mean())["losses"]
    assert losses[-1] < losses[0]


def lstm_biases(device):
    torch.manual_seed(0)
    cell = nn.LSTMCell(8, 16).double().to(device)
    inputs = torch.arange(32, dtype=torch.float64).view(4, 8).div(32).to(device)
    hidden, state = cell(inputs)
    (hidden.sum() + state.sum()).backward()
    return [cell.bias_ih.grad.cpu(), cell.bias_hh.grad.cpu()]


def test_both_biases_of_a_recurrent_cell_get_the_same_gradient():
    there, here = lstm_biases("cuda"), lstm_biases("cpu")
    assert torch.equal(there[0], there[1])
    assert [bias.float().round(decimals=4).tolist() for bias in there] == [
        bias.float().round(decimals=4).tolist() for bias in here
    ]


def rms_norm(device, dtype):
    torch.manual_seed(0)
    norm = nn.RMSNorm(32, eps=1e-6, dtype=dtype)
    nn.init.uniform_(norm.weight)
    norm = norm.to(device)
    inputs = torch.randn(4, 5, 32, dtype=dtype).to(device).requires_grad_()
    outputs = norm(inputs)
    outputs.float().pow(3).sum().backward()
    return fingerprint([outputs, inputs.grad, norm.weight.grad])


def test_rms_norm_equals_a_cpu_run():
    assert rms_norm("cuda", torch.float32) == rms_norm("cpu", torch.float32)


def test_products_may_have_a_wider_type_than_their_factors():
    a, b = torch.randn(4, 8).bfloat16(), torch.randn(8, 3).bfloat16()
    product = torch.mm(a.cuda(), b.cuda(), out_dtype=torch.float32)
    assert torch.equal(product.cpu(), a.float() @ b.float())
