# SPDX-License-Identifier: Apache-2.0
"""A tensor on the wrong device is refused where a GPU refuses it, and taken where a GPU takes it."""

import ctypes
import pathlib
import re
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


def kernels_of_the_chip():
    """Which attention PyTorch chooses, and the bytes of cuBLAS's workspace for its first product."""
    q = torch.ones(2, 4, 64, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    attention = torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True).grad_fn.name()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    result = q[0, 0].detach() @ q[0, 0].detach()
    taken = torch.cuda.max_memory_allocated() - before - result.numel() * result.element_size()
    return torch.cuda.get_device_capability(), attention, taken


# ATen/cuda/CublasHandlePool.cpp: 8 times 4096 KiB on 9.0, else 2 times 4096 KiB and 16 times 8 KiB
@pytest.mark.parametrize(
    ("capability", "attention", "workspace"),
    [
        ("8.0", "ScaledDotProductFlashAttentionBackward0", (4096 * 2 + 16 * 8) * 1024),
        ("9.0", "ScaledDotProductCudnnAttentionBackward0", 4096 * 8 * 1024),
    ],
)
@pytest.mark.parametrize("shape_only", ["0", "1"])
def test_the_chip_decides_on_kernels_and_their_memory(
    elsewhere, capability, attention, workspace, shape_only
):
    found = elsewhere(kernels_of_the_chip, capability=capability, shape_only=shape_only)
    assert found == [[int(number) for number in capability.split(".")], attention, workspace]


def test_what_pytorch_asks_of_nvml_is_answered():
    """Newer versions call it without looking whether it is there."""
    torch.cuda.init()
    nvml = ctypes.CDLL("libnvidia-ml.so.1")
    binary = (pathlib.Path(torch.__file__).parent / "lib" / "libc10_cuda.so").read_bytes()
    asked_for = {name.decode() for name in re.findall(rb"\0(nvml[A-Z]\w+)(?=\0)", binary)}
    assert "nvmlInit_v2" in asked_for
    for name in asked_for:
        assert getattr(nvml, name) is not None
    assert nvml.nvmlInit_v2() == 0
