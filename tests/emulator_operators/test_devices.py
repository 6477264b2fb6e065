# SPDX-License-Identifier: Apache-2.0
"""A tensor on the wrong device is refused where a GPU refuses it, and taken where a GPU takes it."""

import pathlib
import sys

import pytest
import torch

sys.path.append(str(pathlib.Path(__file__).parents[1] / "gpu"))
from mixed_devices import ROWS  # the same table is put to a real GPU


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_mixed_devices(row):
    tensors = torch.ones(3, 3, device="cuda"), torch.ones(3, 3)
    if not row.refusal:
        row.call(*tensors)
        return
    with pytest.raises(RuntimeError, match=row.refusal) as error:
        row.call(*tensors)
    assert "cuda:0" in str(error.value)
    assert "cpu" in str(error.value)


def test_the_table_is_large():
    assert len(ROWS) >= 32
    assert sum(not row.refusal for row in ROWS) >= 8
    assert all(row.decided for row in ROWS)


def test_a_refused_operator_changes_nothing():
    cuda = torch.ones(3, 3, device="cuda")
    with pytest.raises(RuntimeError):
        cuda.add_(torch.ones(3, 3))
    assert torch.equal(cuda.cpu(), torch.ones(3, 3))


def foreach_on_two_devices():
    tensors = [torch.ones(4, device="cuda:0"), torch.ones(4, device="cuda:1")]
    try:
        torch._foreach_add(tensors, 1.0)
    except NotImplementedError as error:
        return str(error)
    return ""


def test_lists_over_several_devices_are_refused_by_name(elsewhere):
    assert "aten::_foreach_add.Scalar on one device at a time" in elsewhere(
        foreach_on_two_devices, devices="2"
    )


def use_two_devices():
    first, second = torch.ones(4, 4, device="cuda:0"), torch.full((4, 4), 2.0, device="cuda:1")
    try:
        first + second
        refusal = ""
    except RuntimeError as error:
        refusal = str(error)
    turned = torch.empty(4, 4, device="cuda:0").t().copy_(second.double())
    return {
        "refusal": refusal,
        "result device": (second * 2).device.index,
        "moved": (first + second.to("cuda:0")).sum().item(),
        "turned": turned.sum().item(),
        "current": torch.cuda.current_device(),
    }


def test_two_devices_are_kept_apart(elsewhere):
    seen = elsewhere(use_two_devices, devices="2")
    assert "cuda:0 and cuda:1!" in seen.pop("refusal")
    assert seen == {"result device": 1, "moved": 48.0, "turned": 32.0, "current": 0}


def see_devices():
    return [torch.cuda.is_available(), torch.cuda.device_count()]


@pytest.mark.parametrize(
    ("visible", "expected"), [("1", [True, 1]), ("1,0", [True, 2]), ("", [False, 0]), ("-1", [False, 0])]
)
def test_hidden_devices_are_not_there(elsewhere, monkeypatch, visible, expected):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert elsewhere(see_devices, devices="2") == expected
