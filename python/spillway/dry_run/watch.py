# SPDX-License-Identifier: Apache-2.0
"""Records the figures of a dry run's page, in its process (figures.py)."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spillway._files import replace
from spillway._process import start_of
from spillway.dry_run.answer import QUESTION, SUFFIX
from spillway.dry_run.emulator import Accounting
from spillway.dry_run.figures import Moment, process_figures, settled_steps
from spillway.dry_run.layers import Layers
from spillway.report.sizes import size

if TYPE_CHECKING:
    from spillway.statistics import CannotHelp, ModelStateStats, TagStats

__all__ = ["start"]


def start(folder: str) -> None:
    """At its end this process writes to `folder` what its GPUs did, if it used one. A forked child
    writes none."""
    import torch

    torch.cuda._lazy_call(lambda: _Watch(Path(folder)).begin())


#: With a budget, a plan that has been followed so often in a row is not replaced any more: three steps are
#: measured before another plan is made of their times.
_SETTLED = 4
#: `--steps N` lets a program take this many more steps until then.
_MORE_STEPS = 32


class _Watch:
    def __init__(self, folder: Path) -> None:
        import torch

        self.torch = torch
        self.folder = folder
        self.process = os.getpid()
        self.accounting = Accounting()
        self.devices = range(torch.cuda.device_count())
        # CUDA keeps some of a device's memory for itself, if its profile has such a value.
        self.available = [torch.cuda.mem_get_info(device)[0] for device in self.devices]
        self.fake = torch._subclasses.FakeTensor  # of graphs that are being traced
        self.peaks = [(0, 0) for _ in self.devices]  # allocated and reserved, of before a reset
        self.moments: list[Moment] = []  # the beginning, and the end of each step
        self.first_optimizer: Any = None
        self.stepping: Any = None  # the optimizer whose step has begun
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
        self.knows_holders = self.accounting.watch_memory()
        self.follow_fetches()
        self._keep_peaks_over_resets()
        self.moments.append(self.moment())
        expect_global_hooks()
        module.register_module_forward_pre_hook(self.before_module)
        optimizer.register_optimizer_step_pre_hook(self.before_step)
        optimizer.register_optimizer_step_post_hook(self.after_step)
        atexit.register(self.write)

    def follow_fetches(self) -> None:
        """What model state is fetched into has its class, not that of the operator that needs it."""
        from spillway._load import glue

        if glue.cache_info().currsize:
            # Buffers count as parameters.
            roles = ("parameters", "parameters", "gradients", "optimizer_states", "activations")
            glue().report_fetches(*self.accounting.of_fetches(*roles))

    def moment(self) -> Moment:
        to_host, to_device = self.accounting.copied()
        tags = _tags()
        plans = _plans(tags)
        return Moment(
            [self.accounting.end_ms(device) for device in self.devices],
            [self.accounting.busy_ms(device) for device in self.devices],
            to_host,
            to_device,
            plans,
            any("cannot_help" in step["last"]["skipped"] for step in tags.values()),
        )

    def before_module(self, module: Any, arguments: tuple[Any, ...]) -> None:
        if self.torch.compiler.is_compiling():
            return
        if module not in self.met:
            self.met.update(module.modules())
            self.roots.add(module)
            self.set_role("parameters", (*module.parameters(), *module.buffers()))
        if module in self.roots:
            tensors = (each for each in arguments if isinstance(each, self.torch.Tensor))
            self.set_role("inputs", (each for each in tensors if not each.requires_grad))

    def before_step(self, optimizer: Any, *_: Any) -> None:
        self.stepping = weakref.ref(optimizer)
        if self.first_optimizer is None:
            self.first_optimizer = self.stepping
        parameters = [each for group in optimizer.param_groups for each in group["params"]]
        self.set_role("parameters", parameters)
        self.set_role("gradients", (each.grad for each in parameters))
        self.accounting.allocates_for("optimizer_temporaries")

    def after_step(self, optimizer: Any, *_: Any) -> None:
        self.accounting.allocates_for("other")
        self.stepping = None
        self.set_role("optimizer_states", _tensors(optimizer.state))
        if self.first_optimizer is not None and self.first_optimizer() is optimizer:
            self.moments.append(self.moment())
            if self.is_over():
                raise SystemExit(0)

    def is_over(self) -> bool:
        """Whether the program has taken as many steps as it was asked for, and its budget has settled."""
        most = self.question["steps"]
        taken = len(self.moments) - 1
        if most is None or taken < most:
            return False
        if not self.moments[-1].plans or taken >= most + _MORE_STEPS:
            return True
        steps = settled_steps(self.moments)
        return len(steps) >= _SETTLED and steps.stop == taken

    def set_role(self, role: str, tensors: Any) -> None:
        for tensor in map(_local, tensors):
            # Tensors without memory of their own have none to name, nor have lazy modules' at first.
            with contextlib.suppress(AttributeError, RuntimeError, NotImplementedError, ValueError):
                if tensor.is_cuda and not isinstance(tensor, self.fake):
                    self.accounting.set_role(tensor.untyped_storage().data_ptr(), role)

    def _keep_peaks_over_resets(self) -> None:
        c: Any = self.torch._C
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
        # The states of a step that was not finished, for lack of memory.
        if (optimizer := self.stepping and self.stepping()) is not None:
            self.set_role("optimizer_states", _tensors(optimizer.state))
        figures = process_figures(self.accounting, self.knows_holders, self.moments, self.moment())
        cuda = self.torch.cuda
        offloaded = _offloaded_at_peaks()
        for device in figures["devices"]:
            index = device["index"]
            device["name"] = cuda.get_device_properties(index).name
            device["capacity_bytes"] = cuda.get_device_properties(index).total_memory
            device["available_bytes"] = self.available[index]
            device["peak_allocated_bytes"], device["peak_reserved_bytes"] = self.peak(index)
            device["offloaded_at_peak_bytes"] = offloaded.get(index, 0)
            device["budget_exceeded"] = _budget_exceeded(index)
        figures["devices"] = [each for each in figures["devices"] if each["peak_reserved_bytes"]]
        about = {
            "process": self.process,
            "rank": os.environ.get("RANK"),
            "command": [sys.executable, *sys.orig_argv[1:]],
            "profile": self.question["profile"],
            "samples_per_step": self.question["samples"],
            "checkpointed_layers": self.layers.count if self.layers else None,
            "compiled": "spillway._dry_compile" in sys.modules,  # imported with the first graph
            "peak_pinned_bytes": self.accounting.pinned_peak(),
            "budget_missed": _budget_missed(),
            "cannot_help": _cannot_help(),
            "model_state": _model_state(),
            "allocator": cuda.memory.get_allocator_backend(),
            "expandable_segments": _expandable_segments(),
        }
        text = json.dumps({**about, **figures})
        with contextlib.suppress(OSError):  # the launcher reports that no result arrived
            (self.folder / f"{self.process}{SUFFIX}").write_text(text)
        if report := os.environ.get("SPILLWAY_REPORT"):
            with contextlib.suppress(OSError):  # beside the log, if there is one
                log = f"{self.process}-{start_of(self.process)}"
                replace({Path(report) / f"{log}{SUFFIX}": text})


def _cannot_help() -> CannotHelp | None:
    """As spillway.stats() has it."""
    from spillway._load import glue
    from spillway.statistics import stats

    return stats()["cannot_help"] if glue.cache_info().currsize else None


def _model_state() -> ModelStateStats | None:
    """As spillway.stats() has it; None where the program does not use Spillway."""
    from spillway._load import glue
    from spillway.statistics import stats

    return stats()["model_state"] if glue.cache_info().currsize else None


def _budget_exceeded(device: int) -> str | None:
    """What needed the most beyond a job's budget, also in evaluations; None if nothing did."""
    from spillway._load import glue
    from spillway._operator_need import largest_need

    need = largest_need(device) if glue.cache_info().currsize else None
    return None if need is None else f"{size(need.needed)} were reserved. {need}"


def _offloaded_at_peaks() -> dict[int, int]:
    """Bytes that were on the host at the peak of the allocated bytes, by device of Spillway's heap."""
    from spillway._load import glue

    devices = glue().stats()["devices"] if glue.cache_info().currsize else {}
    return {index: of["heap"]["offloaded_at_allocated_peak_bytes"] for index, of in devices.items()}


def _plans(tags: dict[str, TagStats]) -> tuple[Any, ...]:
    """As Moment has them."""
    from spillway._load import glue

    found = []
    for tag, step in tags.items():
        records = glue().records(tag)
        if records or glue().has_budget():
            last = step["last"]
            found.append((tag, records, last["offloaded_bytes"], last["left_to_recompute_bytes"]))
    return tuple(found)


def _tags() -> dict[str, TagStats]:
    """As in spillway.stats(); none where the program does not use Spillway."""
    from spillway._load import glue

    return glue().stats()["tags"] if glue.cache_info().currsize else {}


def _budget_missed() -> str | None:
    """The text of the BudgetError that has ended the program, if one has."""
    budget = sys.modules.get("spillway.budget_error")
    error = getattr(sys, "last_value", None)
    return str(error) if budget is not None and isinstance(error, budget.BudgetError) else None


def _expandable_segments() -> bool:
    """Whether PyTorch's allocator was asked, by the environment, not to leave memory in pieces."""
    asked = (os.environ.get(name, "") for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"))
    return any("expandable_segments:true" in each.replace(" ", "").lower() for each in asked)


def _local(tensor: Any) -> Any:
    """The local shard of a tensor that several processes share (DTensor)."""
    return getattr(tensor, "_local_tensor", tensor)


def _tensors(state: Any) -> Iterator[Any]:
    """All that lies in an optimizer's state, other things too."""
    for value in state.values():
        if isinstance(value, dict):
            yield from _tensors(value)
        else:
            yield value
