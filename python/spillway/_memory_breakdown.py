# SPDX-License-Identifier: Apache-2.0
"""The memory that a step needs, by class."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from spillway.report.sizes import size

if TYPE_CHECKING:
    from spillway.model_state import ModelState

__all__ = ["MemoryBreakdown"]


@dataclasses.dataclass(frozen=True)
class MemoryBreakdown:
    """The memory in bytes that a step needs on one GPU, by class. The classes add up to `total`.

    Attributes:
        parameters: of the optimizers of ``torch.optim``; None, as the next two, without such an optimizer.
            These three are what the optimizers reference when the error is raised.
        gradients: of these parameters.
        optimizer_states: of these optimizers.
        activations: those that the step saved and that were on the GPU at its peak, as far as the step needs
            more than the classes above.
        other: the rest: inputs, workspaces, activations while they are recomputed, what the allocator
            reserves beyond its blocks, and the first three classes where they are None.
    """

    parameters: int | None
    gradients: int | None
    optimizer_states: int | None
    activations: int
    other: int

    @property
    def total(self) -> int:
        return sum(each or 0 for each in dataclasses.astuple(self))

    @classmethod
    def of(cls, total: int, state: ModelState | None, activations: int) -> MemoryBreakdown:
        """`total` bytes, by class. ``state``: what the optimizers reference on the GPU, if there are any."""
        if state is not None and sum(state) > total:
            state = None  # part of it is memory that the budget does not count
        rest = total - sum(state or ())
        activations = min(activations, rest)
        parameters, gradients, optimizer_states = state or (None, None, None)
        return cls(parameters, gradients, optimizer_states, activations, rest - activations)

    def __str__(self) -> str:
        sizes = {
            "parameters": self.parameters,
            "gradients": self.gradients,
            "optimizer states": self.optimizer_states,
            "activations in use at the peak": self.activations,  # the others were offloaded or recomputed
        }
        known = [f"{name} {size(each)}" for name, each in sizes.items() if each is not None]
        # Their peaks are measured only by a dry run, which knows each block's operator.
        other = "such as inputs, workspaces and temporaries, whose sizes `spillway dry-run` shows"
        return ", ".join([*known, f"other {size(self.other)}, {other}"])
