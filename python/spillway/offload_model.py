# SPDX-License-Identifier: Apache-2.0
"""A model in host memory whose parts are loaded to the GPU in turn."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from spillway._arguments import flag, integer
from spillway._load import glue
from spillway._parts import check_tensors, cuda_device, directory_of, parts_of
from spillway.checkpointing import call_again_without_statistics
from spillway.cpu_offload import end_steps_with_optimizers

__all__ = ["OffloadModel"]


class OffloadModel(nn.Module):
    """Train a sequential model with parameters in host memory, loading one part after the other to the GPU.

    Each part is prefetched while the previous one runs, for the forward pass and again for the backward pass.
    Parameters are not copied back, because the GPU does not change them. Gradients are copied to the host as
    they are computed, and are there when ``backward`` returns. An optimizer of ``parameters()`` runs there::

        model = spillway.OffloadModel(nn.Sequential(...), device="cuda", num_slices=4)
        optimizer = torch.optim.AdamW(model.parameters())
        model(x).sum().backward()
        optimizer.step()

    Args:
        model: an ``nn.Sequential``, which is split into slices of about equal bytes, or a list of modules,
            the parts. Its parameters remain the same objects.
        device: the GPU that it runs on; input tensors are copied to it.
        offload_device: where parameters, buffers and gradients are stored: the CPU, or a directory on a disk.
            In a directory they are in an unnamed, memory-mapped file, which is deleted with the model.
        num_slices: number of slices of an ``nn.Sequential``, from 1 to its length. The GPU has memory for one
            slice, which is two parts if there are enough layers; of a list it has memory for two parts.
        checkpoint_activation: whether parts save only their inputs, on the host, and recompute their
            activations in the backward pass.
        num_microbatches: number of chunks along dimension 0 into which input tensors are split. All chunks
            run while a part is on the GPU. Results are concatenated along dimension 0.

    ``stats()`` counts the bytes that were copied. To change a parameter's dtype, convert the model before
    wrapping.

    Raises:
        TypeError, ValueError: an argument is invalid; the message names it and the allowed values. Nothing
            has changed. The forward pass raises RuntimeError inside the reverse-mode transforms of
            ``torch.func``.
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
        directory = directory_of(offload_device)
        integer("num_microbatches", num_microbatches, 1)
        self.checkpoint_activation = flag("checkpoint_activation", checkpoint_activation)
        self.num_microbatches = num_microbatches
        parts = parts_of(model, num_slices)
        self._unpacks = not isinstance(model, nn.Sequential)
        whole = model if isinstance(model, nn.Module) else nn.ModuleList(model)
        check_tensors(whole, OffloadModel)
        end_steps_with_optimizers()
        self._shards = glue().Shards(
            [[(p, False) for p in part.parameters()] + [(b, True) for b in part.buffers()] for part in parts],
            self.device.index,
            min(2, len(parts)),
            directory,
        )
        self.model = whole
        # Not registered: these are views of the model that `self.model` already is.
        self._parts: tuple[nn.Module, ...] = tuple(parts)
        self._buffers_of_parts = [_entries(part, "_buffers") for part in parts]
        self._parameters_of_parts = [entry for part in parts for entry in _entries(part, "_parameters")]
        self.register_state_dict_pre_hook(_settle)  # type: ignore[no-untyped-call]
        self.register_load_state_dict_pre_hook(_before_loading)  # type: ignore[no-untyped-call]

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """Runs ``model(*inputs, **kwargs)``. In a list of modules, a tuple that one module returns becomes
        the arguments of the next; keyword arguments are for the first module."""
        _check_hooks()
        pieces = self._split((inputs, kwargs))
        self._give_buffers_back()
        self._check_parameters()
        self._shards.begin()
        outputs: list[Any] = []
        for number in range(len(self._parts)):
            outputs = self._shards.run(number, functools.partial(self._run_all, number, pieces))
            unpack = self._unpacks and all(isinstance(output, tuple) for output in outputs)
            pieces = [(output if unpack else (output,), {}) for output in outputs]
        if not torch.is_grad_enabled():
            self._shards.wait_for_copies()
        return self._join(outputs)

    def stats(self) -> dict[str, int]:
        """Counters since the model was wrapped: ``loaded_bytes`` copied to the GPU, ``gradient_bytes`` copied
        to the host, ``slot_bytes`` of device memory for parts now, and ``extra_slots``, the number of times
        that a part needed more device memory because the slots were in use."""
        return dict(self._shards.stats())

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(
            "an OffloadModel cannot be copied or pickled. Wrap a copy of its model, or save its state_dict."
        )

    def _run_all(self, number: int, pieces: list[Any]) -> list[Any]:
        part = self._parts[number]
        if self.checkpoint_activation:
            outputs = [call_again_without_statistics(part, args, kwargs) for args, kwargs in pieces]
        else:
            outputs = [part(*args, **kwargs) for args, kwargs in pieces]
        self._keep_assigned_buffers(number)
        return outputs

    def _keep_assigned_buffers(self, number: int) -> None:
        """Copies buffers that the part has replaced into the originals, as if it had written to them."""
        for buffers, name, buffer in self._buffers_of_parts[number]:
            assigned = buffers.get(name)
            if assigned is buffer:
                continue
            buffers[name] = buffer
            if assigned is None or assigned.shape != buffer.shape or assigned.dtype != buffer.dtype:
                raise ValueError(
                    f"buffer {name} of an OffloadModel must stay a tensor of shape {tuple(buffer.shape)} and "
                    f"{buffer.dtype}, not {_described(assigned)}"
                )
            with torch.no_grad():
                buffer.copy_(assigned)

    def _give_buffers_back(self) -> None:
        """Restores the original buffers after a recomputation or a failed pass has replaced them."""
        for part in self._buffers_of_parts:
            for buffers, name, buffer in part:
                if buffers.get(name) is not buffer:
                    buffers[name] = buffer

    def _check_parameters(self) -> None:
        for parameters, name, parameter in self._parameters_of_parts:
            if parameters.get(name) is not parameter:
                raise RuntimeError(
                    f"parameter {name} of an OffloadModel was replaced. Write to it in place, or wrap the "
                    "model again."
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
        """Conversions that change nothing are allowed: ``cpu()``, ``to("cpu")``, ``float()`` of float32."""
        with torch.no_grad():
            for name, tensor in (*self.named_parameters(), *self.named_buffers()):
                converted = fn(tensor)
                if converted is tensor:
                    continue
                raise RuntimeError(
                    f"an OffloadModel cannot be converted, but this would change {name} from "
                    f"{_described(tensor)} on {tensor.device} to {_described(converted)} on "
                    f"{converted.device}. Convert the model before wrapping it."
                )
        return self

    def share_memory(self) -> Any:
        raise RuntimeError(
            "an OffloadModel cannot be shared, because its parameters are in pinned memory of this process. "
            "Share the model's state_dict."
        )


_Entry = tuple[dict[str, Any], str, torch.Tensor]


def _entries(part: nn.Module, kind: str) -> list[_Entry]:
    """The dictionaries and names of the tensors in `part`."""
    return [
        (getattr(module, kind), name, tensor)
        for module in part.modules()
        for name, tensor in getattr(module, kind).items()
        if tensor is not None
    ]


def _check_hooks() -> None:
    """Raises if saved-tensor hooks, which load saved weights again, are disabled by a reverse-mode
    transform."""
    autograd: Any = torch._C._autograd
    if torch.is_grad_enabled() and not autograd._saved_tensors_hooks_is_enabled():
        raise RuntimeError(
            "an OffloadModel needs saved-tensor hooks to fetch its weights for the backward pass, but they "
            "are disabled here, as inside torch.func.grad, vjp, jacrev and hessian. Use backward(), "
            "torch.autograd.grad, or torch.func.jvp and jacfwd."
        )


def _described(assigned: torch.Tensor | None) -> str:
    return "None" if assigned is None else f"one of shape {tuple(assigned.shape)} and {assigned.dtype}"


def _settle(module: nn.Module, *_: Any) -> None:
    module._give_buffers_back()  # type: ignore[operator]
    module._shards.wait_for_copies()  # type: ignore[union-attr, operator]


def _before_loading(
    module: nn.Module, state: dict[str, Any], prefix: str, metadata: dict[str, Any], *_: Any
) -> None:
    if metadata.get("assign_to_params_buffers"):
        raise ValueError(
            "assign must be False, not True, because load_state_dict of an OffloadModel copies into its "
            "tensors"
        )
    _settle(module)
