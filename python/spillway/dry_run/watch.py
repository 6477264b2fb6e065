# SPDX-License-Identifier: Apache-2.0
"""Takes down, in the process of a dry run, what its page says (figures.py)."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from spillway.dry_run.answer import QUESTION, SUFFIX
from spillway.dry_run.emulator import Books
from spillway.dry_run.figures import Moment, process_figures
from spillway.dry_run.layers import Layers
from spillway.top import pages

__all__ = ["start"]


def start(folder: str) -> None:
    """At the end of this process a file in `folder` says what its GPUs did, where it used one. A forked child
    writes none."""
    import torch

    torch.cuda._lazy_call(lambda: _Watch(Path(folder)).begin())


class _Watch:
    def __init__(self, folder: Path) -> None:
        import torch

        self.torch = torch
        self.folder = folder
        self.process = os.getpid()
        self.books = Books()
        self.devices = range(torch.cuda.device_count())
        # Of a device's memory CUDA keeps some for itself, where its profile says so.
        self.available = [torch.cuda.mem_get_info(device)[0] for device in self.devices]
        self.fake = torch._subclasses.FakeTensor  # of graphs that are being traced
        self.peaks = [(0, 0) for _ in self.devices]  # allocated and reserved, of before a reset
        self.moments: list[Moment] = []  # the beginning, and the end of each step
        self.first_optimizer: Any = None
        self.question = json.loads((folder / QUESTION).read_text())
        self.layers = Layers() if self.question["checkpoint"] else None
        self.met: weakref.WeakSet[Any] = weakref.WeakSet()  # modules
        self.roots: weakref.WeakSet[Any] = weakref.WeakSet()  # of them, those that no other one had

    def begin(self) -> None:
        from torch.nn.modules import module
        from torch.optim import optimizer

        from spillway._module_calls import expect_global_hooks

        if self.layers is not None:
            self.layers.watch()
        self.knows_holders = self.books.watch_memory()
        self._keep_peaks_over_resets()
        self.moments.append(self.moment())
        expect_global_hooks()
        module.register_module_forward_pre_hook(self.before_module)
        optimizer.register_optimizer_step_pre_hook(self.before_step)
        optimizer.register_optimizer_step_post_hook(self.after_step)
        atexit.register(self.write)

    def moment(self) -> Moment:
        to_host, to_device = self.books.copied()
        return Moment(
            [self.books.end_ms(device) for device in self.devices],
            [self.books.busy_ms(device) for device in self.devices],
            to_host,
            to_device,
        )

    def before_module(self, module: Any, arguments: tuple[Any, ...]) -> None:
        if self.torch.compiler.is_compiling():
            return
        if module not in self.met:
            self.met.update(module.modules())
            self.roots.add(module)
            self.give_role("parameters", (*module.parameters(), *module.buffers()))
        if module in self.roots:
            tensors = (each for each in arguments if isinstance(each, self.torch.Tensor))
            self.give_role("inputs", (each for each in tensors if not each.requires_grad))

    def before_step(self, optimizer: Any, *_: Any) -> None:
        if self.first_optimizer is None:
            self.first_optimizer = weakref.ref(optimizer)
        parameters = [each for group in optimizer.param_groups for each in group["params"]]
        self.give_role("parameters", parameters)
        self.give_role("gradients", (each.grad for each in parameters))
        self.books.allocates_for("optimizer_temporaries")

    def after_step(self, optimizer: Any, *_: Any) -> None:
        self.books.allocates_for("other")
        self.give_role("optimizer_states", _tensors(optimizer.state))
        if self.first_optimizer is not None and self.first_optimizer() is optimizer:
            self.moments.append(self.moment())
            most = self.question["steps"]
            if most is not None and len(self.moments) > most:
                raise SystemExit(0)

    def give_role(self, role: str, tensors: Any) -> None:
        for tensor in map(_local, tensors):
            # Tensors without memory of their own have none to name, nor have lazy modules' at first.
            with contextlib.suppress(AttributeError, RuntimeError, NotImplementedError, ValueError):
                if tensor.is_cuda and not isinstance(tensor, self.fake):
                    self.books.give_role(tensor.untyped_storage().data_ptr(), role)

    def _keep_peaks_over_resets(self) -> None:
        c = self.torch._C
        reset = c._cuda_resetPeakMemoryStats

        def keep_and_reset(device: int) -> None:
            self.peaks[device] = self.peak(device)
            reset(device)

        c._cuda_resetPeakMemoryStats = keep_and_reset

    def peak(self, device: int) -> tuple[int, int]:
        """Allocated and reserved, since the beginning."""
        stats = self.torch.cuda.memory_stats(device)
        seen = (stats.get("allocated_bytes.all.peak", 0), stats.get("reserved_bytes.all.peak", 0))
        before = self.peaks[device]
        return max(before[0], seen[0]), max(before[1], seen[1])

    def write(self) -> None:
        if os.getpid() != self.process:
            return
        figures = process_figures(self.books, self.knows_holders, self.moments, self.moment())
        cuda = self.torch.cuda
        for device in figures["devices"]:
            index = device["index"]
            device["name"] = cuda.get_device_properties(index).name
            device["capacity_bytes"] = cuda.get_device_properties(index).total_memory
            device["available_bytes"] = self.available[index]
            device["peak_allocated_bytes"], device["peak_reserved_bytes"] = self.peak(index)
        figures["devices"] = [each for each in figures["devices"] if each["peak_reserved_bytes"]]
        about = {
            "process": self.process,
            "rank": os.environ.get("RANK"),
            "command": [sys.executable, *sys.orig_argv[1:]],
            "profile": self.question["profile"],
            "samples_per_step": self.question["samples"],
            "checkpointed_layers": self.layers.count if self.layers else None,
            "compiled": "spillway._dry_compile" in sys.modules,  # imported with the first graph
            "peak_pinned_bytes": self.books.pinned_peak(),
            "allocator": cuda.memory.get_allocator_backend(),
            "expandable_segments": _expandable_segments(),
        }
        text = json.dumps({**about, **figures})
        with contextlib.suppress(OSError):  # the launcher says that nothing came
            (self.folder / f"{self.process}{SUFFIX}").write_text(text)
        if report := os.environ.get("SPILLWAY_REPORT"):
            with contextlib.suppress(OSError):  # beside the log, if there is one
                log = f"{self.process}-{pages.start_of(self.process)}"
                (Path(report) / f"{log}{SUFFIX}").write_text(text)


def _expandable_segments() -> bool:
    """Whether PyTorch's allocator was asked, by the environment, not to leave memory in pieces."""
    asked = (os.environ.get(name, "") for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"))
    return any("expandable_segments:true" in each.replace(" ", "").lower() for each in asked)


def _local(tensor: Any) -> Any:
    """What this process has of a tensor that several have together (DTensor)."""
    return getattr(tensor, "_local_tensor", tensor)


def _tensors(state: Any) -> Iterator[Any]:
    """All that lies in an optimizer's state, other things too."""
    for value in state.values():
        if isinstance(value, dict):
            yield from _tensors(value)
        else:
            yield value
