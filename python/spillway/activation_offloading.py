# SPDX-License-Identifier: Apache-2.0
"""Activation offloading with the interfaces of torchtune, TRL and Axolotl."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from spillway import _heads
from spillway._arguments import flag, integer
from spillway._load import glue
from spillway._region import Region
from spillway.cpu_offload import end_steps_with_optimizers

if TYPE_CHECKING:
    import torch

__all__ = [
    "ActivationOffloadingMixin",
    "NoOpManager",
    "OffloadActivations",
    "get_act_offloading_ctx_manager",
    "get_lora_act_offloading_ctx_manager",
]


class NoOpManager(Region):
    """A region whose saved tensors stay resident, even inside a region that offloads.

    A context manager and a decorator.
    """

    def _entry(self) -> Callable[[], int]:
        return glue().enter_keeping_region


class OffloadActivations(Region):
    """A region whose saved activations are offloaded to host memory until the backward pass.

    A context manager and a decorator, with TRL's interface; ``spillway.compat.torchtune`` has torchtune's
    order of arguments. The backward pass may run inside or outside, and after any number of forward passes.

    Args:
        use_pin_memory: accepted for compatibility. Host memory is always pinned, within its limits, because
            copies to pageable memory block the host.
        use_streams: whether copies overlap with computation. With False the stream that saves a tensor waits
            for its copy, and tensors are fetched on demand.
        min_offload_size: offload only tensors whose storage has at least this many bytes.
        max_fwd_stash_size: maximum number of saved storages that keep device memory during their copy; at the
            next one the saving stream waits for the earliest copy. Has no effect with Spillway's allocator:
            there a freed block is reusable immediately, and the next user's stream waits for the copy.

    Raises:
        TypeError, ValueError: an option of the wrong type or outside its range.
    """

    def __init__(
        self,
        use_pin_memory: bool = True,
        use_streams: bool = True,
        min_offload_size: int = 1024,
        max_fwd_stash_size: int = 5,
    ) -> None:
        super().__init__()
        self.use_pin_memory = flag("use_pin_memory", use_pin_memory)
        self.use_streams = flag("use_streams", use_streams)
        self.min_offload_size = integer("min_offload_size", min_offload_size, 0)
        self.max_fwd_stash_size = integer("max_fwd_stash_size", max_fwd_stash_size, 1)

    def _entry(self) -> Callable[[], int]:
        end_steps_with_optimizers()
        return functools.partial(
            glue().enter_region,
            1.0,
            "offload_activations",
            min_bytes=self.min_offload_size,
            max_in_flight=self.max_fwd_stash_size if self.use_streams else 0,
            prefetch=self.use_streams,
            names_memory=False,
        )

    def update_model_params(self, model: torch.nn.Module) -> None:
        """Does nothing: saved parameters and their views are recognized without it."""

    def __repr__(self) -> str:
        return (
            f"OffloadActivations(use_pin_memory={self.use_pin_memory}, use_streams={self.use_streams}, "
            f"min_offload_size={self.min_offload_size}, max_fwd_stash_size={self.max_fwd_stash_size})"
        )


def get_act_offloading_ctx_manager(
    model: torch.nn.Module,
    use_pin_memory: bool = True,
    use_streams: bool = True,
    min_offload_size: int = 1024,
    max_fwd_stash_size: int = 5,
    warn_if_no_head: bool = True,
    enabled: bool = True,
) -> OffloadActivations | NoOpManager:
    """A manager for the forward pass of `model` that offloads all activations except those of its output
    head.

    The backward pass needs the head's activations first, so offloading them gains nothing. The head is found
    in plain and in wrapped models (DistributedDataParallel, FSDP, torch.compile, PEFT). Modules that fuse it
    with the loss, such as Liger's, stay resident, too. A second call for the same model has no effect.

    Args:
        model: the model that runs inside the manager.
        warn_if_no_head: whether to warn if no head is found; all activations are offloaded then.
        enabled: with False, return a ``NoOpManager`` and leave the model unchanged.

    The other arguments are those of ``OffloadActivations``.
    """
    if not flag("enabled", enabled):
        return NoOpManager()
    manager = OffloadActivations(use_pin_memory, use_streams, min_offload_size, max_fwd_stash_size)
    _heads.keep_heads(model, warn=flag("warn_if_no_head", warn_if_no_head))
    return manager


get_lora_act_offloading_ctx_manager = get_act_offloading_ctx_manager


class ActivationOffloadingMixin:
    """For trainer classes with ``model``, ``args`` and ``training_step``, as ``transformers.Trainer``::

        class OffloadingTrainer(spillway.compat.ActivationOffloadingMixin, Trainer): ...

    Each training step offloads its activations, unless ``args.activation_offloading`` is False. Replaces the
    trainer's own offloading for that option, such as TRL's.
    """

    activation_offload_context: OffloadActivations | NoOpManager

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        enabled = bool(getattr(self.args, "activation_offloading", True))  # type: ignore[attr-defined]
        self.activation_offload_context = get_act_offloading_ctx_manager(
            self.model,  # type: ignore[attr-defined]
            enabled=enabled,
        )
        if hasattr(self, "maybe_activation_offload_context"):  # TRL's, which would be the inner one and win
            self.maybe_activation_offload_context = contextlib.nullcontext()

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        with self.activation_offload_context:
            return super().training_step(*args, **kwargs)  # type: ignore[misc]
