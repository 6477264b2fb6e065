# SPDX-License-Identifier: Apache-2.0
"""Regions whose saved activations are offloaded to the host."""

from __future__ import annotations

import atexit
import functools
import logging
import math
import numbers
from collections.abc import Callable
from typing import TYPE_CHECKING

from spillway import _saved_in_graphs
from spillway._arguments import text_or_none
from spillway._load import glue
from spillway._optimizer_hooks import on_steps
from spillway._region import Region
from spillway.budget_error import raise_if_missed
from spillway.limits import size_of
from spillway.statistics import stats

if TYPE_CHECKING:
    import torch

__all__ = ["CPUOffload", "step"]


_log = logging.getLogger("spillway")
_logged_limits: dict[str, tuple[int, int]] = {}
_logged_cannot_help: set[int] = set()
_logged: dict[str, tuple[int, int]] = {}


def step() -> None:
    """End the training step now.

    Needed only if no optimizer of ``torch.optim`` steps and graphs outlive the step. Otherwise a step ends
    when the backward pass has released every saved tensor.
    """
    _end_step(optimized=False)


def _end_step(optimized: bool) -> None:
    if _saved_in_graphs.saves_as_a_whole():
        glue().graphs_are_compiled()
    glue().end_step(optimized)
    _log_totals()
    _log_cannot_help(logging.DEBUG)
    raise_if_missed(optimized=optimized)


@functools.cache
def end_steps_with_optimizers() -> None:
    """From now on the step of any optimizer of ``torch.optim`` ends Spillway's."""
    import torch

    from spillway.model_state import report_model_state

    def stepped(optimizer: torch.optim.Optimizer) -> None:
        # An optimizer that steps inside the backward pass ends nothing: the pass goes on.
        if torch._C._current_graph_task_id() == -1:
            report_model_state(optimizer)
            _end_step(optimized=True)

    on_steps(report_model_state, stepped)
    atexit.register(_log_cannot_help, logging.INFO)


def _log_cannot_help(level: int) -> None:
    """Logs why offloading does not lower the peak, at each level once."""
    if level in _logged_cannot_help or not _log.isEnabledFor(level):
        return
    if (why := stats()["cannot_help"]) is not None:
        _logged_cannot_help.add(level)
        _log.log(level, "%s", why["text"])


def _log_totals() -> None:
    """Logs the totals of each tag's last step, if they have changed.

    At DEBUG: programs that log at INFO show progress, and varying shapes change it in each step.
    """
    if not _log.isEnabledFor(logging.DEBUG):
        return
    for tag, step in glue().stats()["tags"].items():
        last = step["last"]
        totals = (last["offloadable_bytes"], last["offloaded_bytes"])
        if totals[0] and _logged.get(tag) != totals:
            _logged[tag] = totals
            _log.debug(
                "tag %r: %d of %d bytes of saved activations were offloaded in a step",
                tag,
                totals[1],
                totals[0],
            )
        if totals[0] and _logged_limits.get(tag) != totals:
            _log_limit(tag, totals)


def _log_limit(tag: str, totals: tuple[int, int]) -> None:
    """Logs how close a budget's steps are to the bound of any plan, once the plan has been timed."""
    from spillway.planning import explain

    found = explain(tag, points=2)
    if found is None or found.taken is None:
        return
    _logged_limits[tag] = totals
    _log.debug("tag %r on GPU %d: %s", tag, found.device, found.optimality_in_words)


def _ratio(value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"offload_ratio must be a number from 0 to 1, not {value!r}")
    ratio = float(value)
    if math.isnan(ratio) or not 0 <= ratio <= 1:
        raise ValueError(f"offload_ratio must be from 0 to 1, not {value!r}")
    return ratio


def _headroom(value: int | str | None) -> int | None:
    return None if value is None else size_of("prefetch_headroom", value, least=0)


class CPUOffload(Region):
    """A region whose saved activations are offloaded to pinned host memory until the backward pass.

    Wrap the forward pass in it, or decorate a function with it::

        with spillway.CPUOffload(offload_ratio=0.5):
            loss = model(batch)
        loss.backward()

    Args:
        offload_ratio: the share of saved bytes to offload, from 0 to 1. From the first step on, at most this
            share of the offloadable bytes is offloaded, and at most one tensor less. Parameters, CPU tensors,
            storages below 1024 bytes and tensors that are referenced elsewhere are not offloadable;
            ``spillway.stats()`` counts them by reason.
        tag: a name under which the region is planned and counted; regions with the same tag share one
            ratio. Default: the empty name.
        prefetch_headroom: maximum bytes of the tag to prefetch ahead of their use, as a number or as text
            such as "512MiB"; 0 disables prefetching. The order is that of the last step. Of several regions
            with one tag, the value of the last one that saved a tensor applies. Default: one storage at a
            time, of any size.

    At level DEBUG, the logger ``spillway`` logs the bytes of each tag when they change.

    An object may be entered again, even while it is open, and in several threads. The region applies to the
    thread that enters it. As in PyTorch, an inner ``saved_tensors_hooks`` context or non-reentrant checkpoint
    takes precedence.

    Raises:
        TypeError: ``offload_ratio`` is not a number, ``tag`` is not a string, or ``prefetch_headroom`` is
            not a size.
        ValueError: ``offload_ratio`` is outside [0, 1]; ``prefetch_headroom`` is negative; or, at entry,
            ``tag`` already has another ratio in this step.
    """

    def __init__(
        self, offload_ratio: float, tag: str | None = None, *, prefetch_headroom: int | str | None = None
    ) -> None:
        self.tag = text_or_none("tag", tag)
        self.offload_ratio = _ratio(offload_ratio)
        self.prefetch_headroom = _headroom(prefetch_headroom)
        super().__init__()

    @staticmethod
    def get_tensor_memory(x: torch.Tensor) -> int:
        """The bytes of the elements of `x`."""
        return x.element_size() * x.nelement()

    def _entry(self) -> Callable[[], int]:
        _log_totals()
        end_steps_with_optimizers()
        return functools.partial(
            glue().enter_region,
            self.offload_ratio,
            self.tag or "",
            prefetch_headroom=self.prefetch_headroom,
        )

    def __repr__(self) -> str:
        return f"CPUOffload(offload_ratio={self.offload_ratio!r}, tag={self.tag!r})"
