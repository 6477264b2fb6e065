# SPDX-License-Identifier: Apache-2.0
"""Triton on the emulated GPU: kernels run in triton's interpreter, on the device's own bytes.

In dry runs no kernel runs: a launch takes the time of its arguments' bytes, and tensors keep what they hold.
A kernel is ordered on its stream as an operator is; the order checker takes an argument for written where its
bytes changed. Autotuners take the first configuration that is left after pruning.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any

from spillway._substitutions import announce
from spillway.emulator import is_dry_run

if TYPE_CHECKING:
    import torch


def patch(module: ModuleType) -> None:
    """`module`: triton.runtime.autotuner, the last of those that are changed here to be imported."""
    jit = sys.modules["triton.runtime.jit"]
    jit.JITFunction.run = _run
    jit.JITFunction.__call__ = _call_on_device(jit.JITFunction.__call__)
    module.Autotuner._bench = lambda self, *arguments, **options: [0.0, 0.0, 0.0]
    module.Autotuner.check_disk_cache = _benchmark
    sys.modules["triton.runtime.driver"].DriverConfig.default = property(lambda self: _driver())


def patch_interpreter(module: ModuleType) -> None:
    """`module`: triton.runtime.interpreter, which programs ask for themselves by TRITON_INTERPRET."""
    if is_dry_run():
        module.InterpretedFunction.run = _run_interpreted
        module.InterpretedFunction.signature = property(lambda self: _signature(self.fn))


def _benchmark(self: Any, key: Any, configurations: Any, benchmark: Any) -> bool:
    """No file: what the emulated GPU takes is not to be found by a later run on a GPU."""
    benchmark()
    return False


@functools.cache
def _signature(function: Any) -> Any:
    import inspect

    return inspect.signature(function)


# --- launches


class _Kernel:
    """Returned by a launch instead of Triton's compiled kernel. It has a name, but no results of
    compilation."""

    name = "a kernel"

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, attribute: str) -> Any:
        raise AttributeError(
            f"kernel {self.name!r}: has no {attribute!r}, because the emulated GPU compiles no Triton "
            "kernels. Read it on a GPU."
        )


def _run(self: Any, *arguments: Any, grid: Any, warmup: bool, **options: Any) -> _Kernel:
    """JITFunction.run: `options` are arguments by name, and num_warps and the like."""
    name = f"{self.fn.__module__}.{self.fn.__qualname__}"
    if warmup:
        raise NotImplementedError(
            f"{name}: cannot be compiled; the emulated GPU interprets Triton kernels. Launch it without "
            "warmup."
        )
    for hook in self.pre_run_hooks:
        hook(*arguments, **options)
    names = self.signature.parameters
    bound = self.signature.bind(*arguments, **{key: each for key, each in options.items() if key in names})
    bound.apply_defaults()
    blocks = grid(dict(bound.arguments)) if callable(grid) else grid
    launch = _Launch(name, bound.arguments.values())
    if is_dry_run():
        announce("Triton kernels are timed by the bytes of their arguments and write nothing")
        launch.estimate()
        return _Kernel(self.fn.__name__)
    announce("Triton kernels run in Triton's interpreter")

    def compute() -> None:
        from spillway import _triton_interpreter

        _triton_interpreter.run(self, name, bound.arguments, (*blocks, 1, 1)[:3])

    launch.run(compute)
    return _Kernel(self.fn.__name__)


def _run_interpreted(self: Any, *arguments: Any, **options: Any) -> None:
    """InterpretedFunction.run, which returns nothing."""
    _run(self, *arguments, **options)


def _call_on_device(original: Any) -> Any:
    """A kernel's call of another function, which the interpreter makes as any other call."""

    @functools.wraps(original)
    def call(self: Any, *arguments: Any, **options: Any) -> Any:
        interpreter = sys.modules.get("spillway._triton_interpreter")
        if interpreter is None or not interpreter.is_running():
            return original(self, *arguments, **options)
        return interpreter.call(self, *arguments, **options)

    return call


class _View(ctypes.Structure):
    """spillway_emulator_view: runs of bytes along axes."""

    _fields_ = (
        ("at", ctypes.c_void_p),
        ("run", ctypes.c_size_t),
        ("axes", ctypes.c_size_t),
        ("counts", ctypes.c_size_t * 8),
        ("strides", ctypes.c_size_t * 8),
        ("write", ctypes.c_int),
    )


@functools.cache
def _emulator() -> Any:
    library = ctypes.CDLL(None)
    stream, at, name = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p
    library.spillway_emulator_touch.argtypes = [stream, at, ctypes.c_size_t, ctypes.c_int, name]
    library.spillway_emulator_access_view.argtypes = [stream, ctypes.POINTER(_View), name]
    library.spillway_emulator_add_node.argtypes = [stream, name, at, at, at, at, ctypes.c_size_t]
    library.spillway_emulator_cost.argtypes = [
        *(stream, ctypes.c_uint64, ctypes.c_double, ctypes.c_int, ctypes.c_int)
    ]
    for function in ("drain", "begin", "capturing"):
        getattr(library, f"spillway_emulator_{function}").argtypes = [stream]
    return library


@functools.cache
def _lasting(name: str) -> ctypes.Array[ctypes.c_char]:
    """The name for reports, which point to it as long as the process lives."""
    return ctypes.create_string_buffer(name.encode())


def _tensors(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    """Those among a kernel's arguments: alone, in tuples, in descriptors and under another type."""
    import torch

    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, tuple):
            yield from _tensors(value)
        elif isinstance(getattr(value, "base", None), torch.Tensor):
            yield value.base


class _Launch:
    """One kernel on the current stream of the current device."""

    def __init__(self, name: str, arguments: Iterable[Any]) -> None:
        import torch

        self.name = _lasting(name)
        self.tensors = [each for each in _tensors(arguments) if each.numel()]
        for each in self.tensors:
            if not each.is_cuda and not each.is_pinned():
                raise ValueError(
                    f"{name}: a pointer argument cannot be accessed from Triton (cpu tensor?). Move it to "
                    "the GPU."
                )
        self.stream = torch.cuda.current_stream().cuda_stream
        self.captured = bool(_emulator().spillway_emulator_capturing(self.stream))
        if self.captured and not is_dry_run():
            raise NotImplementedError(
                f"{name}: the emulated GPU does not capture Triton kernels in CUDA graphs. Launch it outside."
            )
        for each in self.tensors:
            at, size = each.data_ptr(), _span(each)
            if not _emulator().spillway_emulator_touch(self.stream, at, size, 0, self.name):
                torch.cuda.synchronize()  # raises the error, which stays
        if not self.captured:
            _emulator().spillway_emulator_drain(self.stream)

    def estimate(self) -> None:
        self._cost()
        if self.captured:
            # At each launch of the graph nothing happens: free(NULL).
            nothing = ctypes.cast(ctypes.CDLL(None).free, ctypes.c_void_p)
            _emulator().spillway_emulator_add_node(self.stream, self.name, nothing, nothing, None, None, 0)

    def run(self, compute: Any) -> None:
        checks = bool(_emulator().spillway_emulator_checks())
        if checks:
            _emulator().spillway_emulator_begin(self.stream)
            before = [_bytes(each) for each in self.tensors]
        compute()
        if checks:
            for each, held in zip(self.tensors, before, strict=True):
                view = _view(each, write=_bytes(each) != held)
                _emulator().spillway_emulator_access_view(self.stream, ctypes.byref(view), self.name)
        self._cost()

    def _cost(self) -> None:
        moved = sum(min(each.nbytes, _span(each)) for each in self.tensors)
        _emulator().spillway_emulator_cost(self.stream, moved, 0.0, 0, 0)


def _span(tensor: torch.Tensor) -> int:
    """Bytes from the first to the last."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (last + 1) * tensor.element_size()


def _bytes(tensor: torch.Tensor) -> bytes:
    return ctypes.string_at(tensor.data_ptr(), _span(tensor))


def _view(tensor: torch.Tensor, write: bool) -> _View:
    view = _View(tensor.data_ptr(), _span(tensor), 0)
    view.write = int(write)
    axes = [(size, stride) for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size > 1]
    if tensor.nbytes < view.run and len(axes) <= len(view.counts):  # it has gaps
        view.run, view.axes = tensor.element_size(), len(axes)
        for axis, (size, stride) in enumerate(axes):
            view.counts[axis], view.strides[axis] = size, stride * tensor.element_size()
    return view


# --- what programs ask of the device


class _Utils:
    """Of triton's CudaUtils what needs no driver."""

    def get_device_properties(self, device: int) -> dict[str, int]:
        import torch

        found = torch.cuda.get_device_properties(device)
        return {
            "max_shared_mem": getattr(found, "shared_memory_per_block_optin", 0),
            "max_num_regs": getattr(found, "regs_per_multiprocessor", 65536),
            "multiprocessor_count": found.multi_processor_count,
            "warpSize": found.warp_size,
            "sm_clock_rate": getattr(found, "clock_rate", 0),
            "mem_clock_rate": getattr(found, "memory_clock_rate", 0),
            "mem_bus_width": getattr(found, "memory_bus_width", 0),
        }

    def __getattr__(self, name: str) -> Any:
        raise NotImplementedError(
            f"Triton's driver: the emulated GPU does not implement {name!r}. Run this on a GPU."
        )


@functools.cache
def _driver() -> Any:
    from triton.backends.nvidia.driver import CudaDriver

    class EmulatedDriver(CudaDriver):  # type: ignore[misc]
        def __init__(self) -> None:
            super(CudaDriver, self).__init__()
            self.utils = _Utils()
            self.launcher_cls = None

    return EmulatedDriver()
