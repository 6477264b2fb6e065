# SPDX-License-Identifier: Apache-2.0
"""Dry runs: small results of large operators hold what is documented, whatever storage they lie in."""

import math

import pytest
import torch
import torch.nn.functional as F

DRY = dict(shape_only="1", memory="141GiB")
SHAPE = (64, 128)


def arguments():
    make = dict(device="cuda", requires_grad=True)
    scores, other = torch.rand(SHAPE, **make), torch.rand(SHAPE, device="cuda")
    classes = torch.zeros(SHAPE[0], dtype=torch.long, device="cuda")
    signs = torch.ones(SHAPE[0], device="cuda")
    return scores, other, classes, signs


LOSSES = {
    "l1": lambda scores, other, classes, signs: F.l1_loss(scores, other),
    "mse": lambda scores, other, classes, signs: F.mse_loss(scores, other),
    "mse, summed": lambda scores, other, classes, signs: F.mse_loss(scores, other, reduction="sum"),
    "smooth l1": lambda scores, other, classes, signs: F.smooth_l1_loss(scores, other),
    "huber": lambda scores, other, classes, signs: F.huber_loss(scores, other),
    "cross entropy": lambda scores, other, classes, signs: F.cross_entropy(scores, classes),
    "nll": lambda scores, other, classes, signs: F.nll_loss(scores, classes),
    "binary cross entropy": lambda scores, other, classes, signs: F.binary_cross_entropy(scores, other),
    "with logits": lambda scores, other, classes, signs: F.binary_cross_entropy_with_logits(scores, other),
    "soft margin": lambda scores, other, classes, signs: F.soft_margin_loss(scores, other),
    "multi margin": lambda scores, other, classes, signs: F.multi_margin_loss(scores, classes),
    "kl": lambda scores, other, classes, signs: F.kl_div(scores, other, reduction="batchmean"),
    "poisson": lambda scores, other, classes, signs: F.poisson_nll_loss(scores, other),
    "gaussian": lambda scores, other, classes, signs: F.gaussian_nll_loss(scores, other, other),
    "mean": lambda scores, other, classes, signs: (scores * other).mean(),
    "norm": lambda scores, other, classes, signs: torch.linalg.vector_norm(scores),
}


def read_loss(name):
    loss = LOSSES[name](*arguments())
    total = torch.zeros((), device="cuda")
    total += loss.detach()
    total += loss.detach()
    averaged = loss / 4
    scaled = loss.detach().clone().mul_(3)
    loss.backward()
    return {
        "item": loss.item(),
        "copied": loss.detach().double().cpu().item(),
        "total": total.item(),
        "averaged": averaged.item(),
        "scaled": scaled.item(),
        "finite": bool(torch.isfinite(loss)),
        "storage": loss.untyped_storage().nbytes(),
    }


def read_losses():
    return {name: read_loss(name) for name in LOSSES}


@pytest.fixture(scope="module")
def dry(elsewhere):
    return elsewhere(read_losses, **DRY)


@pytest.fixture(scope="module")
def real(elsewhere):
    return elsewhere(read_losses)


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_has_a_value_and_is_computed_with(dry, name):
    found = dry[name]
    value = found["item"]
    assert math.isfinite(value)
    assert value != 0
    assert found["copied"] == value
    assert found["total"] == 2 * value
    assert found["averaged"] == value / 4
    assert found["scaled"] == 3 * value
    assert found["finite"]


@pytest.mark.parametrize("name", LOSSES)
def test_its_storage_is_that_of_a_real_run(dry, real, name):
    assert dry[name]["storage"] == real[name]["storage"]


def read_losses_that_are_one():
    scores, other, *_ = arguments()
    return [
        loss(scores, other).item()
        for loss in (F.l1_loss, F.mse_loss, F.smooth_l1_loss, F.huber_loss, F.binary_cross_entropy)
    ]


def test_a_loss_of_one_operator_is_one_or_what_is_assumed(elsewhere):
    assert elsewhere(read_losses_that_are_one, **DRY) == [1.0] * 5
    assert elsewhere(read_losses_that_are_one, assume="value=0.5", **DRY) == [0.5] * 5


def given_outputs():
    large = torch.rand(SHAPE, device="cuda")
    outputs = {name: torch.zeros((), device="cuda") for name in ("mean", "norm", "any")}
    torch.mean(large, dim=(0, 1), out=outputs["mean"])
    torch.linalg.vector_norm(large, out=outputs["norm"])
    found = torch.zeros((), dtype=torch.bool, device="cuda")
    torch.any(large > 0, out=found)
    values, places = torch.zeros(64, device="cuda"), torch.ones(64, dtype=torch.long, device="cuda")
    torch.max(large, dim=1, out=(values, places))
    return {
        **{name: each.item() for name, each in outputs.items() if name != "any"},
        "any": found.item(),
        "max": values.unique().tolist(),
    }


def test_an_output_that_the_program_gives_is_a_result_too(elsewhere):
    assert elsewhere(given_outputs, **DRY) == {
        "mean": 1.0,
        "norm": 1.0,
        "any": False,
        "max": [1.0],
    }


def parts_of_what_was_not_computed():
    large = torch.rand(SHAPE, device="cuda")
    part = (large + 1)[0, :8]
    return (part * 2).sum().item(), F.mse_loss(large, large + 1).as_strided((8,), (1,)).sum().item()


def test_a_part_of_a_large_result_is_not_taken_for_computed(elsewhere):
    assert elsewhere(parts_of_what_was_not_computed, **DRY) == [8.0, 1.0]
