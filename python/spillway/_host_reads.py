# SPDX-License-Identifier: Apache-2.0
"""Reports tensor methods that read bytes without an operator to the order checker of the emulated GPU."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

_MOST_AXES = 8


class _View(ctypes.Structure):
    """spillway_emulator_view."""

    _fields_ = (
        ("at", ctypes.c_void_p),
        ("run", ctypes.c_size_t),
        ("axes", ctypes.c_size_t),
        ("counts", ctypes.c_size_t * _MOST_AXES),
        ("strides", ctypes.c_size_t * _MOST_AXES),
        ("write", ctypes.c_int),
    )


def observe() -> None:
    """From now on `tolist`, `numpy` and `__array__` count as reads of the tensor's bytes, where they lie in
    page-locked memory. Later uses of the array are not detected."""
    import torch

    runtime = ctypes.CDLL(None)
    for method in ("tolist", "numpy"):
        setattr(torch.Tensor, method, _observed(runtime, getattr(torch.Tensor, method), method))


def _observed(runtime: ctypes.CDLL, read: Callable[..., Any], method: str) -> Callable[..., Any]:
    from torch import strided

    name = ctypes.create_string_buffer(f"Tensor.{method}".encode())  # the wrapper keeps it

    @functools.wraps(read)
    def call(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if self.is_cpu and self.layout is strided and not self.is_nested:
            _report(runtime, self, name)
        return read(self, *args, **kwargs)

    return call


def _report(runtime: ctypes.CDLL, tensor: torch.Tensor, name: ctypes.Array[ctypes.c_char]) -> None:
    if tensor.numel() == 0:
        return
    item = tensor.element_size()
    axes = [each for each in zip(tensor.shape, tensor.stride(), strict=True) if each[0] > 1 and each[1] > 0]
    if len(axes) > _MOST_AXES:
        return
    view = _View(tensor.data_ptr(), item, len(axes))
    for i, (count, stride) in enumerate(axes):
        view.counts[i], view.strides[i] = count, stride * item
    runtime.spillway_emulator_host_access_view(ctypes.byref(view), name)
