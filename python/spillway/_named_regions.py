# SPDX-License-Identifier: Apache-2.0
"""Regions of a job that opens none: around the forward passes of modules whose name fits a pattern, and
around NVTX ranges."""

from __future__ import annotations

import atexit
import os
import re
import sys
import threading
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.nn.modules import module as modules
from torch.optim import optimizer

from spillway._load import glue
from spillway._module_calls import OpenCalls, expect_global_hooks, outermost_call
from spillway.cpu_offload import CPUOffload

__all__ = ["start"]


def start(ratios: Mapping[str, float]) -> None:
    """From now on, in this process. `ratios`: the share by pattern; the first that fits counts."""
    found: dict[str, CPUOffload] = {}
    tags: set[str] = set()
    for pattern, ratio in ratios.items():
        tag = _tag_of(pattern)
        while tag in tags:  # as of "layers.?" and "layers.*", which have shares of their own
            tag += "-"
        tags.add(tag)
        found[pattern] = CPUOffload(ratio, tag=tag)
    regions = _Regions(found)
    module_calls = _Modules(regions)
    module_calls.watch()
    _watch_nvtx(regions)
    started_in = os.getpid()

    def at_end() -> None:
        # Not of children, nor of a process that only helps others, as a worker of a data loader does.
        if os.getpid() == started_in and module_calls.any:
            _warn_unmatched(regions)

    atexit.register(at_end)


def _tag_of(pattern: str) -> str:
    """`pattern` as a tag, which can contain neither "*" nor empty components."""
    return re.sub(r"[*?]+", "-", pattern).strip("/") or "-"


def _warn_unmatched(regions: _Regions) -> None:
    """Prints one line for patterns that fitted nothing. Of several ranks only rank 0 prints."""
    rank = os.environ.get("RANK", "")
    if not regions.unfitted or (rank.isdecimal() and int(rank) > 0):
        return
    patterns = ", ".join(regions.unfitted)
    whose = " of rank 0" if rank else ""
    print(
        f"spillway: --tag-ratio={patterns}: fitted no module and no NVTX range{whose}. Check the names.",
        file=sys.stderr,
    )


class _Regions:
    """Regions by the pattern of the names that they are for."""

    def __init__(self, regions: Mapping[str, CPUOffload]) -> None:
        self._regions = regions
        self.unfitted = list(regions)  # patterns that no name has fitted yet, whatever counted then

    def of(self, name: str) -> CPUOffload | None:
        """Of the first pattern that fits."""
        if self.unfitted:
            self.unfitted = [pattern for pattern in self.unfitted if not _fits(pattern, name)]
        return next((region for pattern, region in self._regions.items() if _fits(pattern, name)), None)


def _fits(pattern: str, name: str) -> bool:
    """A pattern fits a qualified name, or the end of one from a dot on."""
    return fnmatchcase(name, pattern) or fnmatchcase(name, f"*.{pattern}")


#: A model that calls modules which are made in its forward pass is not looked through for each of them.
_MOST_STRANGERS = 64


class _Modules:
    def __init__(self, regions: _Regions) -> None:
        self.any = False  # module has been called
        self._regions = regions
        # A module that is called before one that contains it has another name then.
        self._found: WeakKeyDictionary[torch.nn.Module, CPUOffload | None] = WeakKeyDictionary()
        self._strangers: WeakKeyDictionary[torch.nn.Module, int] = WeakKeyDictionary()
        self._calls = OpenCalls()

    def watch(self) -> None:
        expect_global_hooks()
        modules.register_module_forward_pre_hook(self._before)
        modules.register_module_forward_hook(self._after, always_call=True)
        optimizer.register_optimizer_step_pre_hook(lambda *_: self._calls.end_left())

    def _region(self, module: torch.nn.Module) -> CPUOffload | None:
        try:
            return self._found[module]
        except KeyError:
            self.any = True
            self._name_below(module)
            # One that has come into a model since its first call has its name there.
            outer = outermost_call()
            if outer is not None and outer is not module and self._strangers.get(outer, 0) < _MOST_STRANGERS:
                self._strangers[outer] = self._strangers.get(outer, 0) + 1
                self._name_below(outer)
            return self._found[module]

    def _name_below(self, root: torch.nn.Module) -> None:
        for name, inner in root.named_modules():
            self._found[inner] = self._regions.of(name)

    # What is compiled saves its tensors as a whole: the region around it counts.
    def _before(self, module: torch.nn.Module, _: Any) -> None:
        if torch.compiler.is_compiling():
            return
        region = self._region(module)
        if region is not None:
            if self._calls.is_open(module):  # a recursion, or one that was left
                self._calls.end_left(module)
            self._calls.begin(module, region._opening())

    def _after(self, module: torch.nn.Module, _: Any, __: Any) -> None:
        if not torch.compiler.is_compiling():
            self._calls.end(module)


def _watch_nvtx(regions: _Regions) -> None:
    """Ranges of `torch.cuda.nvtx`, a stack for each thread."""
    nvtx: Any = torch.cuda.nvtx
    push: Callable[[str], Any] = nvtx.range_push
    pop: Callable[[], Any] = nvtx.range_pop
    thread = threading.local()

    def range_push(msg: str) -> Any:
        region = regions.of(msg)
        opened = glue().Opened()
        if not hasattr(thread, "open"):
            thread.open = []
        thread.open.append(opened)
        try:
            if region is not None:
                opened.open(*region._opening())
            return push(msg)
        except BaseException:
            end_last()
            raise

    def end_last() -> None:
        thread.open[-1].close()
        thread.open.pop()

    def range_pop() -> Any:
        if getattr(thread, "open", None):
            end_last()
        return pop()

    nvtx.range_push, nvtx.range_pop = range_push, range_pop
