# SPDX-License-Identifier: Apache-2.0
"""Checks the arguments of an OffloadModel. Errors are TypeError and ValueError, and name the argument."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from spillway._arguments import integer
from spillway._load import glue
from spillway.allocator import use_allocator

__all__ = ["check_offload_device", "check_tensors", "cuda_device", "parts_of", "split_by_bytes", "use_heap"]


def parts_of(model: Any, num_slices: int) -> list[nn.Module]:
    """The parts of `model`, in order, of which the device has two at a time: halves of the slices of an
    ``nn.Sequential``, or a list's modules as they are."""
    if isinstance(model, nn.Sequential):
        _check_that_layers_follow_each_other(model)
        _check_that_there_are_some(model)
        integer("num_slices", num_slices, 1, len(model))
        # One half of a slice runs while the next one comes in: together they take a slice's memory.
        halves = min(2 * num_slices, len(model))
        return [nn.Sequential(*part) for part in split_by_bytes(list(model), halves)]
    if not isinstance(model, (list, tuple, nn.ModuleList)):
        raise TypeError(f"model must be an nn.Sequential or a list of modules, not {type(model).__name__}")
    _check_that_there_are_some(model)
    for index, part in enumerate(model):
        if not isinstance(part, nn.Module):
            raise TypeError(f"model[{index}] must be an nn.Module, not {type(part).__name__}")
    integer("num_slices", num_slices, 1)  # it has its parts already
    return list(model)


def _check_that_there_are_some(model: Any) -> None:
    if len(model) == 0:
        raise ValueError("model must have at least one layer, not 0")


def _check_that_layers_follow_each_other(model: nn.Sequential) -> None:
    if type(model).forward is not nn.Sequential.forward or "forward" in vars(model):
        raise TypeError(
            "model must be an nn.Sequential that runs its layers in order, not "
            f"{type(model).__name__} with its own forward. Pass a list of modules that do the same."
        )


def check_tensors(model: nn.Module, kind: type[nn.Module]) -> None:
    """Raises ValueError if `model` has tensors that cannot move, or a module of `kind` that moves them."""
    for name, module in model.named_modules():
        if isinstance(module, kind):
            raise ValueError(
                f"model must not contain an {kind.__name__}, whose parameters are already offloaded "
                f"({name}). Wrap its model instead."
            )
    for what, tensors in (("parameter", model.named_parameters()), ("buffer", model.named_buffers())):
        for name, tensor in tensors:
            if is_lazy(tensor):
                raise ValueError(
                    f"model must be initialized, but {what} {name} is lazy. Run a forward pass before "
                    "wrapping the model."
                )
            if tensor.is_meta:
                raise ValueError(
                    f"model must be initialized, but {what} {name} is on the meta device. Call to_empty() "
                    "and initialize it before wrapping the model."
                )


def split_by_bytes(layers: Sequence[nn.Module], parts: int) -> list[list[nn.Module]]:
    """`layers` in order in `parts` pieces, none of them empty, of which the largest has as few bytes of
    parameters and buffers as can be."""
    sizes = [sum(t.nbytes for t in (*layer.parameters(), *layer.buffers())) for layer in layers]
    low, high = max(sizes), sum(sizes)
    while low < high:
        middle = (low + high) // 2
        if len(_pieces(sizes, parts, middle)) > parts:
            low = middle + 1
        else:
            high = middle
    ends = [*_pieces(sizes, parts, low), len(layers)]
    return [list(layers[a:b]) for a, b in itertools.pairwise(ends)]


def _pieces(sizes: list[int], parts: int, most: int) -> list[int]:
    """Where pieces of at most `most` bytes begin: at least `parts`, more if these are not enough."""
    begins: list[int] = []
    piece = 0
    for index, size in enumerate(sizes):
        if not begins or piece + size > most or len(sizes) - index == parts - len(begins):
            begins.append(index)
            piece = 0
        piece += size
    return begins


def cuda_device(device: Any) -> torch.device:
    """The CUDA device that `device` names, with its number; without one the current device."""
    count = torch.cuda.device_count()
    allowed = f"from cuda:0 to cuda:{count - 1}" if count else "(there is none here)"
    wrong = f"device must be a CUDA device {allowed}, not {device!r}"
    if isinstance(device, bool) or not isinstance(device, (torch.device, str, int)):
        raise TypeError(wrong)
    try:
        asked = torch.device(device)
    except RuntimeError:
        raise ValueError(wrong) from None
    if asked.type != "cuda" or count == 0 or (asked.index or 0) >= count:
        raise ValueError(wrong)
    current = torch.cuda.current_device() if torch.cuda.is_initialized() else 0
    return torch.device("cuda", current if asked.index is None else asked.index)


def check_offload_device(target: Any) -> None:
    """Raises unless `target` is the CPU."""
    if isinstance(target, (torch.device, str)):
        try:
            if torch.device(target).type == "cpu":
                return
        except RuntimeError:  # no name of a device
            pass
    elif not isinstance(target, os.PathLike):
        raise TypeError(f"offload_device must be the CPU, not {target!r}")
    raise ValueError(
        f"offload_device must be the CPU, not {target!r}. A model cannot be in a directory. Use a machine "
        "with enough host memory for its parameters, gradients and optimizer states."
    )


def use_heap() -> None:
    """Makes Spillway's allocator PyTorch's. Raises RuntimeError if it is too late."""
    if glue().stats()["uses_spillway"]:
        return
    if torch.cuda.is_initialized():
        raise RuntimeError(
            "an OffloadModel needs Spillway's allocator, because only its memory can be offloaded. Call "
            "spillway.use_allocator() before CUDA is initialized."
        )
    use_allocator()
