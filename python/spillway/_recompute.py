# SPDX-License-Identifier: Apache-2.0
"""Regions whose cheap activations are recomputed instead of kept."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable

from spillway._higher_order import pass_through
from spillway._load import glue
from spillway._optimizer_hooks import on_steps
from spillway._region import Region
from spillway.cpu_offload import end_steps_with_optimizers

__all__ = ["RecomputeRegion", "prepare_recomputation", "recompute"]


@functools.cache
def prepare_recomputation() -> None:
    """From now on, parameters count as changed in place by the step of an optimizer with ``fused=True``, as
    with every other optimizer. Higher-order operators run on threads that record operators."""
    import torch

    pass_through()

    def stepped(optimizer: torch.optim.Optimizer) -> None:
        for group in optimizer.param_groups:
            if group.get("fused"):
                changed = [each for each in group["params"] if each.grad is not None]
                with contextlib.suppress(RuntimeError):  # some have no versions
                    torch.autograd.graph.increment_version(changed)

    on_steps(after=stepped)


class RecomputeRegion(Region):
    """The result of :func:`recompute`."""

    def _entry(self) -> Callable[[], int]:
        end_steps_with_optimizers()
        prepare_recomputation()
        return glue().enter_recomputing_region


def recompute() -> RecomputeRegion:
    """A region whose saved activations are recomputed where that is cheap, bit for bit.

    Around the forward pass, or as a decorator of it::

        with spillway.recompute():
            loss = model(batch)
        loss.backward()

    Many saved tensors are cheap functions of other saved tensors: results of activation functions and
    normalizations, autocast's copies of weights, and dropout masks. The region releases them and runs their
    operator again when the backward pass needs them. No layer runs twice, and nothing is offloaded. Tensors
    of operators without a rule are kept.

    Regions nest. A region of ``CPUOffload`` inside or around this one offloads tensors that cannot be
    recomputed.

    The backward pass raises RuntimeError if an input of such an operator was changed in place, for instance a
    weight by an optimizer's step between the forward and the backward pass. As in autograd, changes through
    ``.data`` are not detected.
    """
    return RecomputeRegion()
