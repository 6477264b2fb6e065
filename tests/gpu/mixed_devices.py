# SPDX-License-Identifier: Apache-2.0
"""Which operators take tensors of the CPU beside those of a GPU: one table for the emulated and a real GPU.

Files are in PyTorch's aten/src/ATen. GENERATED is the check around every kernel that native_functions.yaml
does not exempt (device_check).
"""

import dataclasses
from collections.abc import Callable

import torch
import torch.nn.functional as F

SAME_DEVICE = "Expected all tensors to be on the same device"
GENERATED = "core/op_registration/adaption.h common_device_check_failure"
ITERATOR = "TensorIterator.cpp TensorIteratorBase::compute_types"
INDICES = "native/TensorAdvancedIndexing.cpp make_info: indices move to the tensor's device"


@dataclasses.dataclass
class Row:
    name: str
    call: Callable  # of a 3x3 tensor of ones on the GPU and one on the CPU
    decided: str  # the file and function of PyTorch
    refusal: str = SAME_DEVICE  # a regular expression; empty where the call is taken


def taken(name, call, decided):
    return Row(name, call, decided, refusal="")


def step(tensor, optimizer, **options):
    parameter = torch.nn.Parameter(tensor.clone())
    parameter.grad = torch.ones_like(parameter)
    optimizer([parameter], lr=0.1, **options).step()


def index(values):
    return torch.tensor(values)


ROWS = [
    Row("add", lambda c, h: c + h, ITERATOR),
    Row("add, the other way", lambda c, h: h + c, ITERATOR),
    Row("add in place", lambda c, h: c.add_(h), ITERATOR),
    Row("mul by one number in a vector", lambda c, h: c * h[0, :1], ITERATOR),
    Row("comparison", lambda c, h: c < h, ITERATOR),
    Row("maximum", lambda c, h: torch.maximum(c, h), ITERATOR),
    Row("lerp", lambda c, h: torch.lerp(c, h, 0.5), ITERATOR),
    Row("addcmul", lambda c, h: torch.addcmul(c, c, h), ITERATOR),
    Row("mse_loss", lambda c, h: F.mse_loss(c, h), ITERATOR),
    Row(
        "masked_fill by a mask",
        lambda c, h: c.masked_fill(h > 0, 0.0),
        ITERATOR,
        "Expected all tensors to be on the same device|expected self and mask to be on the same device",
    ),
    Row("a number on the CPU that is written", lambda c, h: torch.tensor(0.0).add_(c.sum()), ITERATOR),
    Row("out on the CPU", lambda c, h: torch.add(c, c, out=h), ITERATOR, "Expected (all tensors|out tensor)"),
    Row(
        "where by a condition",
        lambda c, h: torch.where(h > 0, c, c),
        "native/TensorCompare.cpp where_self_out",
        "Expected .* to be on the same device",
    ),
    Row("matmul", lambda c, h: c @ h, GENERATED),
    Row("bmm", lambda c, h: torch.bmm(c[None], h[None]), GENERATED),
    Row("linear", lambda c, h: F.linear(c, h), GENERATED),
    Row("linear with a bias", lambda c, h: F.linear(c, c, h[0]), GENERATED),
    Row("cat", lambda c, h: torch.cat([c, h]), GENERATED),
    Row("layer_norm", lambda c, h: F.layer_norm(c, (3,), h[0]), GENERATED),
    Row("embedding", lambda c, h: F.embedding(index([1]), c), GENERATED),
    Row("cross_entropy", lambda c, h: F.cross_entropy(c, index([0, 1, 2])), GENERATED),
    Row("index_select", lambda c, h: c.index_select(0, index([1])), GENERATED),
    Row("index_add", lambda c, h: c.index_add(0, index([1]), c[:1]), GENERATED),
    Row("gather", lambda c, h: c.gather(0, torch.zeros(3, 3, dtype=torch.long)), GENERATED),
    Row("scatter", lambda c, h: c.scatter(0, torch.zeros(3, 3, dtype=torch.long), 1.0), GENERATED),
    Row(
        "a CPU tensor by CUDA indices",
        lambda c, h: h[torch.tensor([0], device=c.device)],
        "native/TensorAdvancedIndexing.cpp make_info",
        f"{SAME_DEVICE}|indices should be either on",
    ),
    Row(
        "lists of a foreach operator",
        lambda c, h: torch._foreach_add([c], [h]),
        f"native/ForeachUtils.h can_use_fast_route: no, so one after the other: {ITERATOR}",
    ),
    taken("a number on the CPU", lambda c, h: c + torch.tensor(1.0), ITERATOR),
    taken(
        "masked_fill by a number on the CPU", lambda c, h: c.masked_fill(c > 0, torch.tensor(0.0)), ITERATOR
    ),
    taken(
        "where with a number on the CPU",
        lambda c, h: torch.where(c > 0, c, torch.tensor(0.0)),
        "native/TensorCompare.cpp where_self_out: numbers move",
    ),
    taken("indices on the CPU", lambda c, h: c[index([0, 1])], INDICES),
    taken("a mask on the CPU", lambda c, h: c[h > 0], INDICES),
    taken(
        "indices on the CPU, written", lambda c, h: c.index_put_((index([0]),), torch.tensor(1.0)), INDICES
    ),
    taken("copy_", lambda c, h: c.copy_(h), "native/Copy.cpp copy_impl"),
    taken("_foreach_copy_", lambda c, h: torch._foreach_copy_([c], [h]), "native/Copy.cpp copy_impl"),
    taken(
        "AdamW with its step on the CPU",
        lambda c, h: step(c, torch.optim.AdamW, foreach=True),
        "native/ForeachOpsKernels.cpp: lists grouped by device in torch/optim",
    ),
    taken(
        "repeat_interleave by a number",
        lambda c, h: c.repeat_interleave(2, 0),
        "native/Repeat.cpp repeat_interleave_symint",
    ),
]
