# SPDX-License-Identifier: Apache-2.0
"""torch_memory_saver's interface over Spillway's memory: switch by an import.

::

    from spillway.memory_saver import torch_memory_saver

    with torch_memory_saver.region(tag="weights", enable_cpu_backup=True):
        model = Model().cuda()
    torch_memory_saver.pause("weights")
    torch_memory_saver.resume("weights")

The import makes Spillway's heap PyTorch's CUDA allocator, so it comes before anything touches the GPU.
docs/memory_saver.md lists the differences.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ContextDecorator
from typing import TYPE_CHECKING, Any

from spillway._arguments import flag
from spillway._load import glue
from spillway._pause import join_all
from spillway._scope import Opening, Scope

if TYPE_CHECKING:
    import torch

__all__ = ["TorchMemorySaver", "torch_memory_saver"]

_HOOK_MODES = ("preload", "torch")
# By whether the contents are kept.
_ROOTS = {True: "memory_saver/kept", False: "memory_saver/discarded"}


def _checked(tag: str) -> str:
    if not isinstance(tag, str):
        raise TypeError(f"tag must be a string, not {tag!r}")
    if "*" in tag or not all(tag.split("/")):
        raise ValueError(
            f"tag must be a name or a path such as 'model/weights', without '*' or empty parts, not {tag!r}"
        )
    return tag


class _TagPoolScope(Scope, ContextDecorator):
    """Allocations of this thread inside it have this tag and pool."""

    def __init__(self, tag: str, pool: int) -> None:
        self._tag, self._pool = tag, pool

    def _opening(self) -> Opening:
        return functools.partial(glue().TagPoolScope, self._tag, self._pool), glue().TagPoolScope.end


class TorchMemorySaver:
    """Regions whose tensors can be paused, and resumed at the same addresses."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pools: dict[str, int] = {}
        self._hook_mode = "torch"
        self._margin = 0

    def region(self, tag: str = "default", enable_cpu_backup: bool = False) -> AbstractContextManager[Any]:
        """Makes memory that this thread allocates inside pausable, with its contents or without.

        Regions nest; the innermost applies. The backward pass runs on other threads: its memory is in no
        region.
        """
        flag("enable_cpu_backup", enable_cpu_backup)
        path = f"{_ROOTS[enable_cpu_backup]}/{_checked(tag)}"
        return _TagPoolScope(path, self._pool(path))

    @contextlib.contextmanager
    def cuda_graph(
        self,
        cuda_graph: torch.cuda.CUDAGraph,
        pool: Any = None,
        stream: torch.cuda.Stream | None = None,
        capture_error_mode: str = "global",
        tag: str = "default",
        enable_cpu_backup: bool = False,
    ) -> Iterator[None]:
        """``torch.cuda.graph``, whose memory can be paused as a region's. Resume it before a replay."""
        import torch

        with (
            torch.cuda.graph(cuda_graph, pool=pool, stream=stream, capture_error_mode=capture_error_mode),
            self.region(tag, enable_cpu_backup),
        ):
            yield

    def disable(self) -> AbstractContextManager[Any]:
        """Inside a region, allocate ordinary memory, which is not paused.

        Raises RuntimeError outside all regions.
        """
        if not glue().in_pool():
            raise RuntimeError(
                "disable() was called outside of a region() on this thread. Call it inside one."
            )
        return _TagPoolScope("", 0)

    def pause(self, tag: str | None = None) -> None:
        """Release the device memory of a tag's regions, or of all regions. Does nothing if they have none.

        Waits for the work that uses it, and for the copies of contents that are kept.

        Raises RuntimeError if everything is paused already; MemoryError if the host has no memory for the
        contents. On any error nothing has changed.
        """
        self._move(glue().pause_all, [(path, not kept) for path, kept in _paths(tag)])

    def resume(self, tag: str | None = None) -> None:
        """Fetch paused memory to the same addresses. Does nothing if the regions have no memory.

        Raises RuntimeError if nothing is paused; torch.OutOfMemoryError if the device has too little memory.
        On any error nothing has changed.
        """
        join_all()
        self._move(glue().resume_all, [path for path, _ in _paths(tag)])

    @contextlib.contextmanager
    def configure_subprocess(self) -> Iterator[None]:
        """Does nothing: a subprocess that imports this module needs no configuration."""
        yield

    @property
    def enabled(self) -> bool:
        return True

    @property
    def hook_mode(self) -> str:
        """``"preload"`` or ``"torch"``: accepted without effect, because Spillway hooks nothing."""
        return self._hook_mode

    @hook_mode.setter
    def hook_mode(self, mode: str) -> None:
        if mode not in _HOOK_MODES:
            raise ValueError(f"hook_mode must be one of {', '.join(_HOOK_MODES)}, not {mode!r}")
        self._hook_mode = mode

    @property
    def memory_margin_bytes(self) -> int:
        """Bytes of each device that this process leaves to other processes; 0 for none.

        Raises ValueError for a negative value, and for one that is not below each device's memory.
        """
        return self._margin

    @memory_margin_bytes.setter
    def memory_margin_bytes(self, value: int) -> None:
        import torch

        totals = [
            torch.cuda.get_device_properties(each).total_memory for each in range(torch.cuda.device_count())
        ]
        if value < 0 or any(value >= total for total in totals):
            raise ValueError(
                f"memory_margin_bytes must be from 0 to below {min(totals, default=0)}, the smallest "
                f"device's memory, not {value}"
            )
        for device, total in enumerate(totals):
            torch.cuda.set_per_process_memory_fraction(1 - value / total, device)
        self._margin = value

    def get_cpu_backup(self, x: torch.Tensor) -> torch.Tensor | None:
        """A CPU copy of a paused tensor's contents; None if it is not paused or its contents are not kept.

        Raises ValueError for a tensor that is not contiguous or not on a CUDA device.
        """
        import torch

        if not x.is_cuda or not x.is_contiguous():
            raise ValueError(
                f"x must be a contiguous CUDA tensor, not one on {x.device} with strides {x.stride()}"
            )
        copy = glue().host_copy(x.data_ptr(), x.nbytes)
        if copy is None:
            return None
        return torch.frombuffer(copy, dtype=torch.uint8).view(x.dtype).view(x.shape)

    def _pool(self, path: str) -> int:
        """The pool of a kind of region. Pools share no physical memory."""
        with self._lock:
            if path not in self._pools:
                self._pools[path] = glue().new_pool()
            return self._pools[path]

    def _move(self, move: Any, what: list[Any]) -> None:
        # ValueError: there is no such memory. To torch_memory_saver's users that is no error.
        with contextlib.suppress(ValueError):
            move(what)


def _paths(tag: str | None) -> list[tuple[str, bool]]:
    return [(root if tag is None else f"{root}/{_checked(tag)}", kept) for kept, root in _ROOTS.items()]


torch_memory_saver = TorchMemorySaver()


def _use_allocator() -> None:
    import torch

    # If CUDA has started, entering a region raises that it is too late.
    if not torch.cuda.is_initialized():
        glue().use_allocator()


_use_allocator()
