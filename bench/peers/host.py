# SPDX-License-Identifier: Apache-2.0
"""The host of a dry run, for systems that compute there: large tensors have shapes only, as on the GPU."""

from __future__ import annotations

import ctypes
from functools import partial
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

#: Bytes a second that one operator of the host reads and writes. Assumed: one socket's eight channels of DDR5
#: have 307 GB/s. Favors the systems that compute on the host.
RATE = 200e9
LARGE = 1 << 16
_PLAIN = (torch.Tensor, torch.nn.Parameter)


def takes(count: float, rate: float) -> None:
    """Advances the clock of the dry run by the time for this many bytes."""
    if rate:
        sleep = ctypes.CDLL(None).spillway_emulator_sleep
        sleep.argtypes = [ctypes.c_double]
        sleep(count / rate)


class HostShapes(TorchDispatchMode):
    """Operators whose tensors are all on the host, one of them large, compute nothing and touch no memory.
    Small results are 1, or false. A rate of 0: they take no time."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if FakeTensor in types:
            return op(*args, **kwargs)
        if any(each not in _PLAIN for each in types):
            return NotImplemented  # a wrapper's: its own tensors come here next
        tensors = [each for each in tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor)]
        schema = op._schema
        if not tensors:
            return self._made(op, args, kwargs)
        on_host = all(each.device.type == "cpu" for each in tensors)
        if not on_host or all(each.nbytes <= LARGE for each in tensors) or self._leaves(op, kwargs):
            return op(*args, **kwargs)
        takes(sum(each.nbytes for each in tensors), self.rate)
        if schema.name == "aten::_pin_memory":
            return torch.empty_like(tensors[0], pin_memory=True)
        if schema.is_mutable:
            written = [
                (kwargs.get(argument.name) if argument.kwarg_only else args[number])
                for number, argument in enumerate(schema.arguments)
                if argument.alias_info and argument.alias_info.is_write
            ]
            takes(sum(t.nbytes for t in tree_leaves(written) if isinstance(t, torch.Tensor)), self.rate)
            return written[0] if len(schema.returns) == 1 else None
        pinned = bool(kwargs.get("pin_memory"))
        on_meta = {name: value for name, value in kwargs.items() if name not in ("device", "pin_memory")}
        shapes = op(*tree_map_only(torch.Tensor, lambda t: t.to("meta"), args), **on_meta)
        return tree_map_only(torch.Tensor, partial(_empty, pinned=pinned), shapes)

    @staticmethod
    def _leaves(op: Any, kwargs: dict[str, Any]) -> bool:
        """A view, a query, or a copy to another device."""
        returns = op._schema.returns
        view = not op._schema.is_mutable and any(each.alias_info for each in returns)
        elsewhere = kwargs.get("device") is not None and torch.device(kwargs["device"]).type != "cpu"
        return (
            view
            or elsewhere
            or op._schema.name == "aten::is_pinned"
            or not (returns or op._schema.is_mutable)
        )

    @staticmethod
    def _made(op: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """zeros, ones, rand: as empty, if it is large."""
        made = op._schema.name in ("aten::zeros", "aten::ones", "aten::rand", "aten::randn", "aten::full")
        if not made or torch.device(kwargs.get("device") or "cpu").type != "cpu":
            return op(*args, **kwargs)
        shape = op(*args, **{**kwargs, "device": "meta", "pin_memory": False})
        if shape.nbytes <= LARGE:
            return op(*args, **kwargs)
        return torch.empty(shape.shape, dtype=shape.dtype, pin_memory=kwargs.get("pin_memory") or False)


def _empty(shape: torch.Tensor, pinned: bool) -> torch.Tensor:
    made = torch.empty_strided(
        shape.shape, shape.stride(), dtype=shape.dtype, device="cpu", pin_memory=pinned
    )
    if shape.nbytes <= LARGE:
        made.fill_(0 if shape.dtype == torch.bool else 1)
    return made


class NoAdam:
    """In place of DeepSpeed's compiled optimizer."""

    def __init__(self, rate: float) -> None:
        self.rate = rate

    def adam_update(self, *arguments: Any) -> None:
        """Reads parameter, gradient and two states, and writes all but the gradient."""
        takes(sum(each.nbytes * 7 / 4 for each in arguments if isinstance(each, torch.Tensor)), self.rate)

    def destroy_adam(self, _: int) -> None:
        """There is nothing to destroy."""
