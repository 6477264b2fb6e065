# SPDX-License-Identifier: Apache-2.0
"""The parts of a model of which two are on the GPU at a time."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from spillway import _managed, _optimizer_slices
from spillway._load import glue

__all__ = ["PartWindow"]

_BYTES_OF_SLICES = 4  # a slice of an optimizer's step has a gradient and states for each parameter


class PartWindow:
    """Keeps the part that runs on the GPU, and the one that follows, which is prefetched meanwhile.

    Their parameters and buffers are managed storages. Those of other parts are offloaded, and so are
    gradients once their part has run backward. An optimizer's step offloads each slice of parameters, with
    gradients and states, when it has been stepped. An operator fetches what it uses, so results do not
    depend on the order in which parts run: another order costs time.
    """

    def __init__(self, whole: nn.Module, parts: list[nn.Module], device: torch.device) -> None:
        """Moves the model to the GPU, one part after the other."""
        self._parts = parts
        self._stream = torch.cuda.Stream(device)  # for prefetches
        self._near = set(range(len(parts)))  # the parts whose tensors may be on the GPU
        _managed.manage_modules(whole)
        for part in parts:
            part.to(device)
            glue().offload_tensors([*part.parameters(), *part.buffers()])
        largest = max(sum(each.nbytes for each in part.parameters()) for part in parts)
        passing = {id(each): max(1, largest // _BYTES_OF_SLICES) for each in whole.parameters()}
        _optimizer_slices.passing.update(passing)
        weakref.finalize(self, _end, list(passing)).atexit = False

    def begin(self, number: int, following: int | None, backward: bool = False) -> None:
        """A part begins to run on the current stream: prefetches the part that follows, if any, and offloads
        all others, also gradients."""
        stays = {number} if following is None else {number, following}
        kept = {id(each) for part in stays for each in self._tensors(part)}
        if backward:
            kept |= {id(each.grad) for each in self._parts[number].parameters()}
        near, self._near = self._near | stays, stays
        leaving = [each for part in near for each in self._all(part) if id(each) not in kept]
        glue().offload_tensors(leaving)
        if following is not None:
            with torch.cuda.stream(self._stream):
                glue().fetch_tensors(self._tensors(following))

    def leave(self) -> None:
        """Offloads all parts."""
        self._near = set()
        for number in range(len(self._parts)):
            glue().offload_tensors(list(self._all(number)))

    def watch_backward(self, number: int, outputs: Any) -> None:
        """The part's backward pass begins when one of its results has a gradient."""
        if torch._C._functorch.peek_interpreter_stack() is not None:
            return  # tensors of transforms have no hooks
        begin = functools.partial(self._begin_backward, number)
        for each in pytree.tree_leaves(outputs):
            if isinstance(each, torch.Tensor) and each.grad_fn is not None:
                each.register_hook(begin)

    def _begin_backward(self, number: int, _: torch.Tensor) -> None:
        self.begin(number, number - 1 if number > 0 else None, backward=True)

    def _tensors(self, number: int) -> list[torch.Tensor]:
        part = self._parts[number]
        return [*part.parameters(), *part.buffers()]

    def _all(self, number: int) -> Iterator[torch.Tensor]:
        for each in self._tensors(number):
            yield each
            if each.is_leaf and each.grad is not None:
                yield each.grad


def _end(parameters: list[int]) -> None:
    for each in parameters:
        _optimizer_slices.passing.pop(each, None)
