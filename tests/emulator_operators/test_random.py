# SPDX-License-Identifier: Apache-2.0
"""Random numbers live in the CUDA generator, or are those of a CPU run where that is asked for."""

import pytest
import torch
import torch.nn.functional as F
from emulated_models import VOCABULARY, Encoder, fingerprint, fit
from torch import nn
from torch.utils.checkpoint import checkpoint


def test_the_state_of_the_generator_round_trips():
    torch.cuda.manual_seed(3)
    torch.rand(5, device="cuda")
    state = torch.cuda.get_rng_state()
    first = torch.rand(5, device="cuda")
    torch.cuda.set_rng_state(state)
    assert torch.equal(first, torch.rand(5, device="cuda"))


def test_every_draw_is_a_new_one():
    assert not torch.equal(torch.rand(5, device="cuda"), torch.rand(5, device="cuda"))


def test_a_generator_of_its_own_repeats_from_its_seed():
    def draw():
        return torch.randn(5, device="cuda", generator=torch.Generator("cuda").manual_seed(9))

    assert torch.equal(draw(), draw())


def test_a_generator_of_the_cpu_is_refused():
    with pytest.raises(RuntimeError, match="generator"):
        torch.randn(5, device="cuda", generator=torch.Generator())


def test_drawing_leaves_the_generator_of_the_cpu_alone():
    before = torch.get_rng_state()
    torch.rand(5, device="cuda")
    F.dropout(torch.ones(100, device="cuda"))
    assert torch.equal(before, torch.get_rng_state())


def test_dropout_differs_between_calls_and_repeats_from_a_seed():
    ones = torch.ones(1000, device="cuda", requires_grad=True)
    torch.cuda.manual_seed(3)
    first, second = F.dropout(ones), F.dropout(ones)
    torch.cuda.manual_seed(3)
    assert not torch.equal(first, second)
    assert torch.equal(first, F.dropout(ones))


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 32), nn.GELU(), nn.Dropout(0.3))
        self.outer = nn.Linear(32, 16)

    def forward(self, x):
        return x + self.outer(self.inner(x))


def gradients(run):
    torch.manual_seed(0)
    model = nn.ModuleList([Residual() for _ in range(3)]).cuda()
    x = torch.randn(4, 16, device="cuda", requires_grad=True)
    torch.cuda.manual_seed(7)
    hidden = x
    for layer in model:
        hidden = run(layer, hidden)
    hidden.square().mean().backward()
    return fingerprint([x.grad, *(p.grad for p in model.parameters())])


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_checkpointing_draws_the_same_dropout_again(use_reentrant):
    plain = gradients(lambda layer, x: layer(x))
    assert plain == gradients(lambda layer, x: checkpoint(layer, x, use_reentrant=use_reentrant))


def test_saving_on_the_cpu_changes_nothing():
    plain = gradients(lambda layer, x: layer(x))
    with torch.autograd.graph.save_on_cpu(pin_memory=True):
        assert plain == gradients(lambda layer, x: layer(x))


def fit_with_dropout(device):
    torch.manual_seed(0)
    model = Encoder(dropout=0.1).to(device)
    tokens = torch.randint(0, VOCABULARY, (4, 9), generator=torch.Generator().manual_seed(1)).to(device)

    def loss_of(model):
        return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())

    return fit(model, torch.optim.AdamW(model.parameters(), lr=3e-3), loss_of)


def test_on_request_dropout_is_that_of_a_cpu_run(elsewhere):
    assert elsewhere(fit_with_dropout, "cuda", rng="cpu") == fit_with_dropout("cpu")


def draw_everything(device):
    torch.manual_seed(5)
    normal = torch.randn(7, device=device)
    order = torch.randperm(9, device=device)
    coins = torch.bernoulli(torch.full((6,), 0.5, device=device))
    picked = torch.multinomial(torch.ones(5, device=device), 3)
    return [t.tolist() for t in (normal, order, coins, picked, normal.exponential_())]


def test_on_request_numbers_are_those_of_a_cpu_run(elsewhere):
    assert elsewhere(draw_everything, "cuda", rng="cpu") == draw_everything("cpu")


def test_by_default_numbers_are_not_those_of_a_cpu_run():
    assert draw_everything("cuda") != draw_everything("cpu")
