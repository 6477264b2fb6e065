# SPDX-License-Identifier: Apache-2.0
"""The operator that needs the most memory in a job whose budget is too small for it."""

from __future__ import annotations

import dataclasses
from typing import Any

from spillway._load import glue
from spillway.report.sizes import size

__all__ = ["OperatorNeed", "OperatorTensor", "largest_need", "name_model_state"]

_SHOWN = 6  # tensors
_CLASSES = {
    "parameters": "parameter",
    "buffers": "buffer",
    "gradients": "gradient",
    "optimizer_states": "optimizer state",
    "autocast_casts": "autocast's cast of a parameter",
    "": "not model state",
}


@dataclasses.dataclass(frozen=True)
class OperatorTensor:
    """An argument of an operator.

    Attributes:
        shape: its sizes.
        dtype: such as ``"float32"``.
        bytes: of its storage, which has to be on the GPU as a whole.
        kind: the class of model state ("parameters", "buffers", "gradients", "optimizer_states",
            "autocast_casts"); empty for other tensors.
        name: such as ``"layers.0.weight"`` or ``"gradient of layers.0.weight"``; empty if it is unknown.
    """

    shape: tuple[int, ...]
    dtype: str
    bytes: int
    kind: str
    name: str

    def __str__(self) -> str:
        what = self.name or f"a tensor ({_CLASSES[self.kind]})"
        return f"{what} {list(self.shape)} {self.dtype} {size(self.bytes)}"


@dataclasses.dataclass(frozen=True)
class OperatorNeed:
    """The allocation that needed the most memory after everything else that can leave the GPU had left.

    Attributes:
        operator: such as ``"aten::mm"``; empty outside of operators.
        allocated: bytes of the allocation that had no room.
        needed: reserved bytes with it.
        tensors: the operator's arguments on the GPU, the largest first. Empty for operators that use no model
            state.
        resident: bytes of model state that were on the GPU, by class.
    """

    operator: str
    allocated: int
    needed: int
    tensors: tuple[OperatorTensor, ...]
    resident: dict[str, int]

    def __str__(self) -> str:
        who = self.operator or "code outside of PyTorch's operators"
        text = f"{who} needs the most: {size(self.allocated)} had no room"
        if not self.tensors:
            return text
        shown = [str(each) for each in self.tensors[:_SHOWN]]
        if rest := self.tensors[_SHOWN:]:
            shown.append(f"{len(rest)} more of {size(sum(each.bytes for each in rest))}")
        return f"{text}, and its tensors have to be on the GPU together: {', '.join(shown)}"

    @property
    def budget(self) -> int:
        """A budget with room for it. Another layout may reserve a little more."""
        return self.needed + self.needed // 128 + (8 << 20)


def largest_need(device: int) -> OperatorNeed | None:
    """That of the largest excess of the device's budget so far; None without one."""
    name_model_state()
    found: dict[str, Any] | None = glue().largest_budget_excess(device)
    if found is None:
        return None
    tensors = tuple(
        OperatorTensor(tuple(each["shape"]), each["type"], each["bytes"], each["of"], each["name"])
        for each in found["arguments"]
    )
    return OperatorNeed(found["operator"], found["allocated"], found["needed"], tensors, found["resident"])


def name_model_state() -> None:
    """Gives managed parameters and buffers the names that they have in their modules."""
    from spillway._tensor_names import named_tensors

    for name, tensor in named_tensors():
        if tensor.is_cuda:
            glue().set_managed_name(tensor, name)
