# SPDX-License-Identifier: Apache-2.0
"""Checks the arguments of an OffloadModel. Errors are TypeError and ValueError, and name the argument."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from spillway._arguments import integer
from spillway._load import glue

__all__ = ["check_tensors", "cuda_device", "directory_of", "parts_of", "split_by_bytes"]


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
    """Raises ValueError where `model` has tensors that cannot move, or a module of `kind` that moves them."""
    for name, module in model.named_modules():
        if isinstance(module, kind):
            raise ValueError(
                f"model must not contain an {kind.__name__}, whose parameters are already on the host "
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
            gradient = tensor.grad if tensor.is_leaf else None
            if gradient is not None and gradient.device.type != "cpu":
                raise ValueError(
                    f"model must have no gradients on a device, but that of {what} {name} is on "
                    f"{gradient.device}. Call zero_grad() before wrapping the model."
                )


def split_by_bytes(layers: Sequence[nn.Module], parts: int) -> list[list[nn.Module]]:
    """`layers` in order in `parts` pieces, none of them empty, of which the largest has as few bytes of
    parameters and buffers as can be."""
    sizes = [sum(t.nbytes for t in (*layer.parameters(), *layer.buffers())) for layer in layers]
    begins = glue().split_by_bytes(sizes, parts)
    return [list(layers[a:b]) for a, b in zip(begins, [*begins[1:], len(layers)], strict=True)]


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
    return torch.device("cuda", torch.cuda.current_device() if asked.index is None else asked.index)


def directory_of(target: torch.device | str | os.PathLike[str]) -> str:
    """The directory that `target` names; empty for the CPU. Names of devices are devices, not directories."""
    wrong = f"offload_device must be the CPU or a directory, not {target!r}"
    if isinstance(target, (torch.device, str)):
        try:
            if torch.device(target).type == "cpu":
                return ""
            raise ValueError(wrong)
        except RuntimeError:
            pass
    elif not isinstance(target, os.PathLike):
        raise TypeError(wrong)
    assert not isinstance(target, torch.device)  # returned or refused above
    directory = os.fsdecode(target)
    if not os.path.isdir(directory):
        raise ValueError(wrong)
    return directory
