# SPDX-License-Identifier: Apache-2.0
"""Regions of a job that opens none: around the forward passes of modules whose name fits a pattern, and
around NVTX ranges."""

from __future__ import annotations

import re
import threading
import warnings
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.nn.modules import module as modules
from torch.optim import optimizer

from spillway._module_calls import OpenCalls
from spillway.cpu_offload import CPUOffload

__all__ = ["start"]


def start(ratios: Mapping[str, float]) -> None:
    """From now on, in this process. `ratios`: the share by pattern; the first that fits counts."""
    regions: dict[str, CPUOffload] = {}
    tags: set[str] = set()
    for pattern, ratio in ratios.items():
        tag = _tag_of(pattern)
        while tag in tags:  # as of "layers.?" and "layers.*", which have shares of their own
            tag += "-"
        tags.add(tag)
        regions[pattern] = CPUOffload(ratio, tag=tag)
    _Modules(regions).watch()
    _watch_nvtx(regions)


def _tag_of(pattern: str) -> str:
    """A tag may hold neither "*" nor empty components."""
    return re.sub(r"[*?]+", "-", pattern).strip("/") or "-"


def _fitting(name: str, regions: Mapping[str, CPUOffload]) -> CPUOffload | None:
    """A pattern fits a qualified name, or the end of one from a dot on."""
    for pattern, region in regions.items():
        if fnmatchcase(name, pattern) or fnmatchcase(name, f"*.{pattern}"):
            return region
    return None


class _Modules:
    def __init__(self, regions: Mapping[str, CPUOffload]) -> None:
        self._regions = regions
        # A module that is called before one that contains it has another name then.
        self._found: WeakKeyDictionary[torch.nn.Module, CPUOffload | None] = WeakKeyDictionary()
        self._calls: OpenCalls[CPUOffload] = OpenCalls(lambda region: region.__exit__(None, None, None))

    def watch(self) -> None:
        # It is the module around a compiled one that has the name, so the extra call is the one that counts.
        warnings.filterwarnings("ignore", r"Using `torch\.compile\(module\)` when there are global hooks")
        modules.register_module_forward_pre_hook(self._before)
        modules.register_module_forward_hook(self._after, always_call=True)
        optimizer.register_optimizer_step_pre_hook(lambda *_: self._calls.end_left())

    def _region(self, module: torch.nn.Module) -> CPUOffload | None:
        try:
            return self._found[module]
        except KeyError:
            for name, inner in module.named_modules():
                self._found[inner] = _fitting(name, self._regions)
            return self._found[module]

    # What is compiled saves its tensors as a whole: the region around it counts.
    def _before(self, module: torch.nn.Module, _: Any) -> None:
        if torch.compiler.is_compiling():
            return
        region = self._region(module)
        if region is not None:
            self._calls.end_left(module)
            self._calls.begin(module, region.__enter__())

    def _after(self, module: torch.nn.Module, _: Any, __: Any) -> None:
        if not torch.compiler.is_compiling():
            self._calls.end(module)


def _watch_nvtx(regions: Mapping[str, CPUOffload]) -> None:
    """Ranges of `torch.cuda.nvtx`, a stack for each thread."""
    nvtx: Any = torch.cuda.nvtx
    push: Callable[[str], Any] = nvtx.range_push
    pop: Callable[[], Any] = nvtx.range_pop
    thread = threading.local()

    def range_push(msg: str) -> Any:
        region = _fitting(msg, regions)
        if region is not None:
            region.__enter__()
        if not hasattr(thread, "open"):
            thread.open = []
        thread.open.append(region)
        return push(msg)

    def range_pop() -> Any:
        region = thread.open.pop() if getattr(thread, "open", None) else None
        if region is not None:
            region.__exit__(None, None, None)
        return pop()

    nvtx.range_push, nvtx.range_pop = range_push, range_pop
