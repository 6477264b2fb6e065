# SPDX-License-Identifier: Apache-2.0
"""The step of an optimizer, one slice of its parameters after the other.

An optimizer of ``torch.optim`` iterates over ``param_groups`` and computes each parameter's update from that
parameter, its gradient and its states alone. During a step the groups are handed out in slices, so that the
temporaries, and the tensors that have to be on the GPU, are those of a slice. Bits do not change.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from spillway._host_shortage import warn_of_host_shortage
from spillway._load import glue

if TYPE_CHECKING:
    import torch

__all__ = ["start", "whole_optimizers"]

_TORCHS = "torch.optim."
_WHOLE = "_spillway_param_groups"  # in an optimizer's __dict__, during its step
#: The optimizers that have stepped as a whole, because they are not known to work parameter by parameter.
whole_optimizers: set[str] = set()
Stepped = Callable[[Any, list[Any]], None]


@functools.cache
def start(stepped: Stepped) -> None:
    """From now on. `stepped(optimizer, parameters)` is called after each slice, and after the step of an
    optimizer that is not sliced."""
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    def before(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        _restore(optimizer)  # after a step that raised
        kind: Any = type(optimizer)
        if not _works_by_parameter(kind):
            whole_optimizers.add(f"{kind.__module__}.{kind.__qualname__}")
        elif not _captures() and not _compiles():
            vars(optimizer)[_WHOLE] = optimizer.param_groups
            optimizer.param_groups = _Slices(optimizer, stepped)

    def after(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        _restore(optimizer)
        for group in optimizer.param_groups:
            stepped(optimizer, group["params"])
        glue().managed_step_ended()
        warn_of_host_shortage()

    register_optimizer_step_pre_hook(before)
    register_optimizer_step_post_hook(after)


def _restore(optimizer: torch.optim.Optimizer) -> None:
    whole = vars(optimizer).pop(_WHOLE, None)
    if whole is not None:
        optimizer.param_groups = whole


@functools.cache
def _works_by_parameter(kind: type) -> bool:
    """Whether its step is that of an optimizer of torch.optim that works parameter by parameter."""
    import torch

    owner = next((each for each in kind.__mro__ if "step" in vars(each)), object)
    return owner.__module__.startswith(_TORCHS) and owner is not torch.optim.LBFGS


def _captures() -> bool:
    import torch

    return torch.cuda.is_current_stream_capturing()


def _compiles() -> bool:
    """Whether torch.compile compiles what is called here: it would not iterate over the groups in slices."""
    if "torch._dynamo" not in sys.modules:
        return False
    from torch._C._dynamo.eval_frame import get_eval_frame_callback

    return get_eval_frame_callback() is not None


def _can_be_sliced(parameters: list[Any]) -> bool:
    """Whether the optimizer chooses the same implementation for each slice as for the whole group."""
    import torch

    return all(
        type(each) in (torch.Tensor, torch.nn.Parameter)
        and each.is_cuda
        and (each.grad is None or each.grad.layout is torch.strided)
        for each in parameters
    )


class _Slice(dict[str, Any]):
    """A group with some of its parameters. What the step stores in it goes to the group."""

    def __init__(self, group: dict[str, Any], parameters: list[Any]) -> None:
        super().__init__(group)
        super().__setitem__("params", parameters)
        self._group = group

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        if key != "params":
            self._group[key] = value


class _Slices(list[Any]):
    """The groups of an optimizer. Its step iterates over them in slices, other code over whole groups."""

    def __init__(self, optimizer: torch.optim.Optimizer, stepped: Stepped) -> None:
        super().__init__(optimizer.param_groups)
        self._optimizer = optimizer
        self._stepped = stepped

    def __iter__(self) -> Iterator[Any]:
        caller = sys._getframe(1)
        in_step = caller.f_code.co_name == "step" and caller.f_globals.get("__name__", "").startswith(_TORCHS)
        return self._slices() if in_step else super().__iter__()

    def _slices(self) -> Iterator[Any]:
        try:
            for group in super().__iter__():
                if not _can_be_sliced(group["params"]):
                    yield group
                    continue
                for parameters in self._cut(group["params"]):
                    yield _Slice(group, parameters)
                    self._stepped(self._optimizer, parameters)
        finally:  # also after a step that raised
            _restore(self._optimizer)

    def _cut(self, parameters: list[Any]) -> Iterator[list[Any]]:
        part: list[Any] = []
        size = 0
        # A slice has gradients, states and temporaries too.
        most = glue().slice_bytes(parameters[0].device.index) // 4 if parameters else 0
        for parameter in parameters:
            part.append(parameter)
            size += parameter.nbytes
            if size >= most:
                yield part
                part, size = [], 0
        if part or not parameters:
            yield part
