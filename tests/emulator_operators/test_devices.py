# SPDX-License-Identifier: Apache-2.0
"""A tensor on the wrong device is refused where a GPU refuses it, and taken where a GPU takes it."""

import pytest
import torch
import torch.nn.functional as F

REFUSED = {
    "add": lambda cuda, cpu: cuda + cpu,
    "add, the other way": lambda cuda, cpu: cpu + cuda,
    "add in place": lambda cuda, cpu: cuda.add_(cpu),
    "matmul": lambda cuda, cpu: cuda @ cpu,
    "cat": lambda cuda, cpu: torch.cat([cuda, cpu]),
    "linear": lambda cuda, cpu: F.linear(cuda, cpu),
    "layer_norm": lambda cuda, cpu: F.layer_norm(cuda, (3,), cpu[0]),
    "embedding": lambda cuda, cpu: F.embedding(torch.tensor([1]), cuda),
    "cross_entropy": lambda cuda, cpu: F.cross_entropy(cuda, torch.tensor([0, 1, 2])),
    "where": lambda cuda, cpu: torch.where(cpu > 0, cuda, cuda),
    "index_select": lambda cuda, cpu: cuda.index_select(0, torch.tensor([1])),
    "gather": lambda cuda, cpu: cuda.gather(0, torch.zeros(3, 3, dtype=torch.long)),
    "a CPU tensor by CUDA indices": lambda cuda, cpu: cpu[torch.tensor([0], device="cuda")],
    "out on the CPU": lambda cuda, cpu: torch.add(cuda, cuda, out=cpu),
    "a CPU number that is written": lambda cuda, cpu: torch.tensor(0.0).add_(cuda.sum()[None]),
    "foreach": lambda cuda, cpu: torch._foreach_add([cuda], [cpu]),
}

TAKEN = {
    "a number on the CPU": lambda cuda, cpu: cuda + torch.tensor(1.0),
    "where with a number on the CPU": lambda cuda, cpu: torch.where(cuda > 0, cuda, torch.tensor(0.0)),
    "indices on the CPU": lambda cuda, cpu: cuda[torch.tensor([0, 1])],
    "a mask on the CPU": lambda cuda, cpu: cuda[cpu > 0],
    "indices on the CPU, written": lambda cuda, cpu: cuda.index_put_((torch.tensor([0]),), torch.tensor(1.0)),
    "copy_": lambda cuda, cpu: cuda.copy_(cpu),
    "_foreach_copy_": lambda cuda, cpu: torch._foreach_copy_([cuda], [cpu]),
    "optimizer with its step on the CPU": lambda cuda, cpu: step(cuda),
}


def step(tensor):
    parameter = torch.nn.Parameter(tensor.clone())
    parameter.grad = torch.ones_like(parameter)
    torch.optim.AdamW([parameter], foreach=True).step()


@pytest.mark.parametrize("call", REFUSED.values(), ids=REFUSED.keys())
def test_mixed_devices_are_refused(call):
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device") as error:
        call(torch.ones(3, 3, device="cuda"), torch.ones(3, 3))
    assert "cuda:0" in str(error.value)
    assert "cpu" in str(error.value)


@pytest.mark.parametrize("call", TAKEN.values(), ids=TAKEN.keys())
def test_by_design_some_are_on_the_cpu(call):
    call(torch.ones(3, 3, device="cuda"), torch.ones(3, 3))


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
