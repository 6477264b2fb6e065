# SPDX-License-Identifier: Apache-2.0
"""Output heads: modules whose activations the backward pass needs first."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from spillway._load import glue
from spillway._scope import open_calls

if TYPE_CHECKING:
    import torch

#: Where models keep their head, below their outermost wrappers.
HEAD_NAMES = (
    "output",
    "lm_head",
    "embed_out",
    "score",
    "classifier",
    "head",
    "decoder.output",
    "decoder.lm_head",
    "qa_outputs",
)

_FSDP = "torch.distributed.fsdp.fully_sharded_data_parallel.FullyShardedDataParallel"
_CHECKPOINT = "torch.distributed.algorithms._checkpoint.checkpoint_wrapper.ActivationWrapper"

#: Classes around a model, and where they have it; known by name, since importing them takes long.
WRAPPERS = {
    "torch.nn.parallel.distributed.DistributedDataParallel": "module",
    "torch.nn.parallel.data_parallel.DataParallel": "module",
    "torch._dynamo.eval_frame.OptimizedModule": "_orig_mod",
    "deepspeed.runtime.engine.DeepSpeedEngine": "module",
    _FSDP: "_fsdp_wrapped_module",
    _CHECKPOINT: "_checkpoint_wrapped_module",
}

_kept: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()


def keep_on_device(*kept: torch.nn.Module | torch.nn.Parameter | torch.optim.Optimizer) -> None:
    """Keep these on the device, whatever regions and budgets offload.

    * A module: the activations that it saves, its parameters and buffers, and what belongs to these.
    * A parameter: its memory, its gradients, and its states in optimizers.
    * An optimizer: its states. Its parameters and their gradients may be offloaded.

    What is on the host is fetched now. It stays for the rest of the process, except that a parameter given by
    itself is no longer kept once it has other memory (``.data =``, ``model.to``).

    Raises TypeError for any other argument, before anything has changed; ``torch.OutOfMemoryError`` if what
    is on the host does not fit.
    """
    import torch

    from spillway import _managed

    for each in kept:
        if not isinstance(each, torch.nn.Module | torch.nn.Parameter | torch.optim.Optimizer):
            raise TypeError(
                "keep_on_device: each argument must be an nn.Module, a parameter or an optimizer, not "
                f"{each!r}"
            )
    for each in kept:
        if isinstance(each, torch.nn.Module):
            _keep_activations(each)
            _managed.keep_modules(each)
        elif isinstance(each, torch.nn.Parameter):
            _managed.keep_parameter(each)
        else:
            _managed.keep_optimizer(each)


def _keep_activations(module: torch.nn.Module) -> None:
    if module in _kept:
        return
    _kept.add(module)
    module.register_forward_pre_hook(_enter)
    module.register_forward_hook(_leave, always_call=True)


def keep_heads(model: torch.nn.Module, warn: bool) -> None:
    """Keeps the activations of `model`'s head on the device."""
    import torch

    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model must be an nn.Module, not {model!r}")
    heads = list(dict.fromkeys(find_heads(model)))
    if not heads and warn:
        warnings.warn(
            f"{type(model).__name__}: no output head was found, so its activations are offloaded like all "
            f"others. Spillway looks for get_output_embeddings() and for {', '.join(HEAD_NAMES)}. Name "
            "another head with spillway.memory.keep_on_device(module), or pass warn_if_no_head=False.",
            stacklevel=3,
        )
    for head in heads:
        _keep_activations(head)


def find_heads(model: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """The output heads of `model` and the modules that fuse one with the loss."""
    import torch

    inner = _unwrapped(model)
    get_output_embeddings = getattr(inner, "get_output_embeddings", None)
    if callable(get_output_embeddings):
        # Models that inherit it without having a head may raise anything.
        head = None
        with suppress(Exception):
            head = get_output_embeddings()
        if isinstance(head, torch.nn.Module):
            yield head
    for name in HEAD_NAMES:
        found: Any = inner
        for part in name.split("."):
            found = getattr(found, part, None)
        # A head that is tied to the embedding may be a plain object around a linear module.
        if not isinstance(found, torch.nn.Module):
            found = getattr(found, "linear", None)
        if isinstance(found, torch.nn.Module):
            yield found
    for name, module in inner.named_modules():
        if "liger" in name.lower() or "liger" in type(module).__name__.lower():
            yield module


def _unwrapped(model: torch.nn.Module) -> torch.nn.Module:
    import torch

    while True:
        get_base_model = getattr(model, "get_base_model", None)  # PEFT's
        if callable(get_base_model):
            inner = get_base_model()
        else:
            names = [f"{kind.__module__}.{kind.__qualname__}" for kind in type(model).__mro__]
            inner = next((getattr(model, WRAPPERS[name]) for name in names if name in WRAPPERS), None)
        if not isinstance(inner, torch.nn.Module) or inner is model:
            return model
        model = inner


def _enter(module: torch.nn.Module, inputs: Any) -> None:
    calls = open_calls(__name__)
    calls.end_left(module)
    calls.begin(module, (glue().enter_keeping_region, glue().leave_region))


def _leave(module: torch.nn.Module, inputs: Any, output: Any) -> None:
    open_calls(__name__).end(module)
