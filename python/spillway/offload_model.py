# SPDX-License-Identifier: Apache-2.0
"""A model of which two parts are on the GPU at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from spillway._arguments import flag, integer
from spillway._part_window import PartWindow
from spillway._parts import check_offload_device, check_tensors, cuda_device, parts_of, use_heap
from spillway.checkpointing import checkpoint_call
from spillway.cpu_offload import end_steps_with_optimizers

__all__ = ["OffloadModel"]


class OffloadModel(nn.Module):
    """Train a sequential model of which two parts are on the GPU at a time.

    Parameters, buffers, gradients and optimizer states are CUDA tensors that leave the GPU after their use.
    Each part is prefetched while the previous one runs, in the forward and in the backward pass. An optimizer
    of ``parameters()`` steps on the GPU, one slice of parameters after the other. So results are those of the
    plain model on the GPU, bit for bit::

        model = spillway.OffloadModel(nn.Sequential(...), device="cuda", num_slices=4)
        optimizer = torch.optim.AdamW(model.parameters())
        model(x).sum().backward()
        optimizer.step()

    It needs Spillway's allocator, and makes it PyTorch's if CUDA is not initialized yet. It needs pinned host
    memory for all parameters, buffers, gradients and optimizer states.

    Args:
        model: an ``nn.Sequential``, which is split into slices of about equal bytes, or a list of modules,
            the parts. Its parameters remain the same objects, and are moved to the GPU.
        device: the GPU that it runs on; input tensors are copied to it.
        offload_device: the CPU.
        num_slices: number of slices of an ``nn.Sequential``, from 1 to its length. The GPU has memory for one
            slice, which is two parts if there are enough layers; of a list it has memory for two parts.
        checkpoint_activation: whether parts save only their inputs, on the host, and recompute their
            activations in the backward pass.
        num_microbatches: number of chunks along dimension 0 into which input tensors are split. All chunks
            run while a part is on the GPU. Results are concatenated along dimension 0.

    ``spillway.stats()["model_state"]`` counts the bytes that were copied.

    Raises:
        TypeError, ValueError: an argument is invalid; the message names it and the allowed values. Nothing
            has changed.
        RuntimeError: CUDA is initialized with another allocator. Nothing has changed.
    """

    def __init__(
        self,
        model: nn.Sequential | Sequence[nn.Module],
        device: torch.device | str,
        offload_device: torch.device | str | os.PathLike[str] = torch.device("cpu"),  # noqa: B008
        num_slices: int = 3,
        checkpoint_activation: bool = False,
        num_microbatches: int = 1,
    ) -> None:
        super().__init__()
        self.device = cuda_device(device)
        check_offload_device(offload_device)
        integer("num_microbatches", num_microbatches, 1)
        self.checkpoint_activation = flag("checkpoint_activation", checkpoint_activation)
        self.num_microbatches = num_microbatches
        parts = parts_of(model, num_slices)
        self._unpacks = not isinstance(model, nn.Sequential)
        whole = model if isinstance(model, nn.Module) else nn.ModuleList(model)
        check_tensors(whole, OffloadModel)
        use_heap()
        end_steps_with_optimizers()
        self._shares = sum(1 for part in parts for _ in part.parameters()) > len(list(whole.parameters()))
        self._window = PartWindow(whole, parts, self.device)
        self.model = whole
        # Not registered: these are views of the model that `self.model` already is.
        self._parts: tuple[nn.Module, ...] = tuple(parts)
        self.register_load_state_dict_post_hook(_leave)  # type: ignore[no-untyped-call]

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """Runs ``model(*inputs, **kwargs)``. In a list of modules, a tuple that one module returns becomes
        the arguments of the next; keyword arguments are for the first module."""
        pieces = self._split((inputs, kwargs))
        outputs: list[Any] = []
        last = len(self._parts) - 1
        for number, part in enumerate(self._parts):
            # The backward pass begins with the last part, then needs the one before it.
            before = last - 1 if last > 0 and torch.is_grad_enabled() else None
            self._window.begin(number, number + 1 if number < last else before)
            outputs = [self._run(part, args, options) for args, options in pieces]
            self._window.watch_backward(number, outputs)
            # Casts of weights would stay until autocast ends. Parts that share a weight share its cast, too:
            # the gradients of two casts would be added in another dtype.
            if torch.is_autocast_enabled("cuda") and not self._shares:
                torch.clear_autocast_cache()
            unpack = self._unpacks and all(isinstance(output, tuple) for output in outputs)
            pieces = [(output if unpack else (output,), {}) for output in outputs]
        return self._join(outputs)

    def _run(self, part: nn.Module, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        if self.checkpoint_activation:
            return checkpoint_call(part, args, options, offload_to_cpu=True)
        return part(*args, **options)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(
            "an OffloadModel cannot be copied or pickled. Wrap a copy of its model, or save its state_dict."
        )

    def _split(self, arguments: Any) -> list[Any]:
        leaves, shape = pytree.tree_flatten(arguments)
        leaves = [leaf.to(self.device) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        count = self.num_microbatches
        if count == 1:
            return [pytree.tree_unflatten(leaves, shape)]
        rows = {leaf.shape[0] for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.dim() > 0}
        if len(rows) != 1:
            raise ValueError(
                f"num_microbatches={count}: needs tensors of equal dimension 0 to split, not {sorted(rows)}"
            )
        split = [
            leaf.chunk(count) if isinstance(leaf, torch.Tensor) and leaf.dim() > 0 else None
            for leaf in leaves
        ]
        pieces = max(len(chunks) for chunks in split if chunks is not None)
        return [
            pytree.tree_unflatten(
                [leaf if chunks is None else chunks[i] for leaf, chunks in zip(leaves, split, strict=True)],
                shape,
            )
            for i in range(pieces)
        ]

    def _join(self, outputs: list[Any]) -> Any:
        if len(outputs) == 1:
            return outputs[0]
        flat = [pytree.tree_flatten(output) for output in outputs]
        joined = []
        for leaves in zip(*(leaves for leaves, _ in flat), strict=True):
            if all(isinstance(leaf, torch.Tensor) and leaf.dim() > 0 for leaf in leaves):
                joined.append(torch.cat(leaves))
            elif any(isinstance(leaf, torch.Tensor) for leaf in leaves):
                raise ValueError(
                    f"num_microbatches={len(outputs)}: needs results with a dimension 0 to concatenate, not "
                    "scalars. Return losses with a dimension, or use num_microbatches=1."
                )
            else:
                joined.append(leaves[0])
        return pytree.tree_unflatten(joined, flat[0][1])

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Any:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self._window.leave()
        return self


def _leave(module: nn.Module, _: Any) -> None:
    module._window.leave()  # type: ignore[union-attr, operator]
