# SPDX-License-Identifier: Apache-2.0
"""Regions whose cheap activations are computed again instead of kept."""

from __future__ import annotations

from spillway._load import glue
from spillway._region import Region
from spillway.cpu_offload import end_steps_with_optimizers

__all__ = ["RebuildRegion", "rebuild"]


class RebuildRegion(Region):
    """What :func:`rebuild` gives."""

    def _enter(self) -> int:
        end_steps_with_optimizers()
        return glue().enter_rebuilding_region()


def rebuild() -> RebuildRegion:
    """A region whose saved activations are computed again where that is cheap, bit for bit.

    Around the forward pass, or as a decorator of it::

        with spillway.rebuild():
            loss = model(batch)
        loss.backward()

    Many tensors that autograd keeps are cheap functions of others that it keeps anyway: the result of an
    activation function of its input, of a normalization, a dropout mask of the random numbers that it was
    drawn from. They are let go, and the operator that made them runs again when the backward pass asks for
    them; no layer runs twice, and nothing moves. What has no rule is kept, as without the region.

    Regions nest: inside another one, or around it, what cannot be computed again moves as that one says.

    The backward pass raises RuntimeError where something that an operator needs again has been changed in
    place meanwhile. What autograd does not see is not seen here: changes through ``.data``, and steps of an
    optimizer with ``fused=True`` between the forward and the backward pass.
    """
    return RebuildRegion()
