# SPDX-License-Identifier: Apache-2.0
"""Micro-batches whose activations are offloaded until shortly before their backward pass."""

from __future__ import annotations

import functools
import logging
import time
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from spillway._arguments import flag, integer
from spillway._horizon import Tuner
from spillway._load import glue
from spillway._region import Region
from spillway._scope import Opening, Scope, open_calls

if TYPE_CHECKING:
    import torch

    from spillway._glue import Glue

__all__ = ["Microbatches", "microbatches"]

_log = logging.getLogger("spillway")
_attached: weakref.WeakKeyDictionary[torch.nn.Module, weakref.ref[Microbatches]] = weakref.WeakKeyDictionary()
_Stage = TypeVar("_Stage")


def microbatches(
    offload_activations: bool = True, activation_loading_horizon: int | Literal["auto"] = 4
) -> Microbatches:
    """Training steps of several micro-batches, whose activations are offloaded until their backward pass.

    Around the steps of a loop that accumulates gradients::

        micro = spillway.microbatches(activation_loading_horizon=4)
        for batches in data:
            with micro:  # one training step
                losses = []
                for batch in batches:
                    with micro.batch():  # one forward pass
                        losses.append(loss_of(model(batch)))
                for loss in losses:
                    loss.backward()
            optimizer.step()

    and around those of a pipeline, where each call of a stage is a micro-batch::

        micro.attach(stage)
        with micro:
            schedule.step(batch)

    Each layer in ``spillway.checkpoint_wrapper`` is a unit: its arguments are offloaded while its forward
    pass runs, and are fetched when the backward pass is `activation_loading_horizon` units away. Tensors
    saved between layers are a unit, too; without checkpointed layers a micro-batch is one unit. Prefetching
    expects the order of the previous step. A micro-batch whose backward pass directly follows its forward
    pass stays resident. If that holds for all of them, nothing is gained, and the logger ``spillway`` reports
    it.

    Args:
        offload_activations: whether to offload; with False the object does nothing.
        activation_loading_horizon: how many units ahead of the backward pass to start fetching, at least 1. A
            larger horizon hides slower copies and uses more memory. "auto" starts with 1 and doubles it while
            steps get faster and the device has memory.

    Raises:
        TypeError, ValueError: an option of the wrong type or outside its range.
    """
    return Microbatches(offload_activations, activation_loading_horizon)


def _room() -> int:
    """Bytes that a step could have had more: what the device has free, and what its allocator keeps beyond
    the most that has been handed out at one time."""
    import torch

    kept = torch.cuda.memory_reserved() - torch.cuda.max_memory_allocated()
    return torch.cuda.mem_get_info()[0] + max(kept, 0)


class Microbatches(Scope):
    """See ``microbatches``. A context manager around one training step at a time."""

    def __init__(
        self, offload_activations: bool = True, activation_loading_horizon: int | Literal["auto"] = 4
    ) -> None:
        self.offload_activations = flag("offload_activations", offload_activations)
        self._tuner = None
        if activation_loading_horizon == "auto":
            self._tuner = Tuner()
            self._horizon = self._tuner.horizon
        elif isinstance(activation_loading_horizon, str):
            raise ValueError(
                "activation_loading_horizon must be an integer of at least 1 or 'auto', "
                f"not {activation_loading_horizon!r}"
            )
        else:
            self._horizon = integer("activation_loading_horizon", activation_loading_horizon, 1)
        self._began: float | None = None
        self._said = False

    # A copy has seen no step yet.
    def __getstate__(self) -> dict[str, Any]:
        state = {name: value for name, value in super().__getstate__().items() if name != "_engine"}
        return {**state, "_began": None}

    @property
    def activation_loading_horizon(self) -> int:
        """The horizon of the running step, or of the next one."""
        return self._horizon

    @functools.cached_property
    def _engine(self) -> Glue.Microbatches:
        return glue().Microbatches(self._horizon)

    def _opening(self) -> Opening:
        if self._engine.in_step:
            raise RuntimeError(
                "microbatches: a training step is already open, and steps do not nest. Leave the first one."
            )
        if self.offload_activations:
            self._say_if_nothing_is_gained()  # a backward pass may have run after the last step was left
            self._tune()
            self._began = time.perf_counter()
        return self._engine.begin_step, self._engine.end_step

    def _left(self, error: BaseException | None) -> None:
        if self.offload_activations and error is None:
            self._say_if_nothing_is_gained()

    def batch(self) -> AbstractContextManager[Any]:
        """The forward pass of one micro-batch, on this thread.

        Raises RuntimeError outside a training step.
        """
        if not self._engine.in_step:
            raise RuntimeError(
                "microbatches: batch() was called outside of a training step. Enter the object around the "
                "step."
            )
        return _Batch(self._engine) if self.offload_activations else nullcontext()

    def attach(self, stage: _Stage) -> _Stage:
        """Make each call of `stage` inside a training step one micro-batch. Returns `stage`.

        Args:
            stage: a module, or a stage of ``torch.distributed.pipelining``.

        Raises:
            TypeError: `stage` is neither.
        """
        import torch

        module = getattr(stage, "submod", stage)
        if not isinstance(module, torch.nn.Module):
            raise TypeError(f"stage must be an nn.Module or a pipeline stage, not {stage!r}")
        if module not in _attached:
            module.register_forward_pre_hook(_enter)
            module.register_forward_hook(_leave, always_call=True)
        _attached[module] = weakref.ref(self)
        return stage

    def stats(self) -> dict[str, int]:
        """Counters since the object was created, and of the latest step.

        ``units``: offloaded; ``units_kept``: kept because their backward pass was near; ``ahead``: fetched
        before the backward pass needed them; ``largest_unit_bytes``: the largest offloaded one. Of the latest
        step, ``batches`` and ``straight_batches``, whose backward pass directly followed.
        """
        return dict(self._engine.stats())

    def _tune(self) -> None:
        if self._tuner is None or self._began is None:
            return
        step = self._engine.stats()
        self._horizon = self._tuner.observe(
            time.perf_counter() - self._began, _room(), step["largest_unit_bytes"], step["batches"]
        )
        self._engine.set_horizon(self._horizon)

    def _say_if_nothing_is_gained(self) -> None:
        step = self._engine.stats()
        if self._said or step["batches"] == 0 or step["straight_batches"] < step["batches"]:
            return
        self._said = True
        _log.warning(
            "microbatches: nothing was offloaded, because the backward pass of each of the %d micro-batches "
            "in "
            "this step directly follows its forward pass. Run several forward passes first, or use a "
            "pipeline "
            "schedule.",
            step["batches"],
        )


class _Batch(Region):
    """The forward pass of one micro-batch. Left on the thread that entered it."""

    def __init__(self, engine: Any) -> None:
        super().__init__()
        self._engine = engine

    def _entry(self) -> Callable[[], int]:
        enter: Callable[[], int] = self._engine.enter
        return enter


def _enter(module: torch.nn.Module, inputs: Any) -> None:
    attached = _attached.get(module)
    micro = attached() if attached is not None else None
    calls = open_calls(__name__)
    calls.end_left(module)
    opening = None
    # A stage that calls itself, or that was opened by hand, is in its micro-batch already.
    if micro is not None and micro.offload_activations and micro._engine.in_step and not calls.is_open():
        opening = _Batch(micro._engine)._opening()
    calls.begin(module, opening)


def _leave(module: torch.nn.Module, inputs: Any, output: Any) -> None:
    open_calls(__name__).end(module)
