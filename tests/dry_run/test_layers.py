# SPDX-License-Identifier: Apache-2.0
"""Which modules are a model's layers, and what recomputing them does not change."""

from __future__ import annotations

import torch
from spillway.dry_run.layers import Layers, repeated
from torch import nn


class Block(nn.Module):
    def __init__(self, inner: nn.Module | None = None) -> None:
        super().__init__()
        self.inner = inner or nn.Linear(4, 4)
        self.calls = 0

    def forward(self, x: torch.Tensor, *, function: float = 1.0) -> torch.Tensor:
        self.calls += 1
        return torch.dropout(self.inner(x), 0.5, True).sin() * function


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x, function=2.0)
        return x


def test_layers_are_the_children_alike_that_have_parts() -> None:
    model = Model()
    assert list(repeated(model)) == list(model.layers)
    nested = nn.Sequential(nn.Linear(4, 4), Block(nn.Sequential(Block(), Block())), Block())
    assert list(repeated(nested)) == [nested[1], nested[2]]


def test_products_in_a_row_are_no_layers() -> None:
    assert list(repeated(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)))) == []
    assert list(repeated(nn.ModuleList([Block(), nn.Linear(4, 4)]))) == []


def gradients(model: Model) -> list[torch.Tensor]:
    torch.manual_seed(1)
    model(torch.ones(2, 4)).sum().backward()
    return [each.grad.clone() for each in model.parameters() if each.grad is not None]


def test_layers_run_twice_with_the_same_gradients() -> None:
    torch.manual_seed(0)
    plain, again = Model(), Model()
    again.load_state_dict(plain.state_dict())
    expected = gradients(plain)
    layers = Layers()
    layers._before(again, ())
    layers._before(again, ())
    found = gradients(again)
    assert layers.count == 3
    assert [layer.calls for layer in again.layers] == [2, 2, 2]
    assert len(found) == len(expected) == 6
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_without_gradients_or_training_layers_run_once() -> None:
    model = Model()
    layers = Layers()
    layers._before(model, ())
    with torch.no_grad():
        model(torch.ones(2, 4))
    model.eval()
    model(torch.ones(2, 4)).sum().backward()
    assert [layer.calls for layer in model.layers] == [2, 2, 2]


def test_a_model_s_own_switch_goes_first() -> None:
    class Switched(Model):
        supports_gradient_checkpointing = True
        given: dict[str, bool] | None = None

        def gradient_checkpointing_enable(self, gradient_checkpointing_kwargs: dict[str, bool]) -> None:
            self.given = gradient_checkpointing_kwargs

    model = Switched()
    layers = Layers()
    layers._before(nn.Sequential(model), ())
    assert model.given == {"use_reentrant": False}
    assert layers.count == 3
    assert "forward" not in model.layers[0].__dict__
