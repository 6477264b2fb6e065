# SPDX-License-Identifier: Apache-2.0
"""One variant of the demonstration, in its own process: `python -m spillway.demo.train_variant CONFIG FD`.

CONFIG is a VariantConfig as JSON. Every step is reported to the file descriptor FD as one line of JSON,
the result as the last one.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any, TextIO

import torch

from spillway.demo import data, measure, report
from spillway.demo.config import STEADY, VariantConfig
from spillway.demo.model import SIZES, Batches, Gpt


def main(arguments: list[str]) -> None:
    config = VariantConfig(**json.loads(arguments[0]))
    with os.fdopen(int(arguments[1]), "w", buffering=1) as out:
        variant = Variant(config)
        for step in range(1, config.steps + 1):
            variant.train(step)
            emit(out, {"step": step})
        emit(out, variant.result())


def emit(out: TextIO, message: dict[str, Any]) -> None:
    out.write(json.dumps(message) + "\n")


class Variant:
    def __init__(self, config: VariantConfig) -> None:
        self.config = config
        self.spillway: Any = None
        if config.ratio is not None:
            import spillway

            self.spillway = spillway
            if config.allocator == "spillway":
                spillway.use_allocator()
        torch.use_deterministic_algorithms(True)
        deterministic: Any = torch.utils.deterministic
        deterministic.fill_uninitialized_memory = False
        torch.manual_seed(config.seed)
        size = SIZES[config.size]
        text = data.load(None if config.data is None else Path(config.data))
        self.batches = Batches(text, size, config.seed)
        self.model = Gpt(size).to("cuda")
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.memory = measure.MemoryOverStep(self.model, self.offloaded)
        self.steps: list[dict[str, Any]] = []
        self.steady_from: dict[str, Any] | None = None

    def region(self) -> contextlib.AbstractContextManager[Any]:
        if self.spillway is None:
            return contextlib.nullcontext()
        region: contextlib.AbstractContextManager[Any] = self.spillway.CPUOffload(
            self.config.ratio, tag="demo"
        )
        return region

    def offloaded(self) -> int:
        return report.offloaded(self.spillway.stats()) if self.spillway else 0

    def train(self, step: int) -> None:
        if step == STEADY:
            self.steady_from = self.counts()
        self.memory.on = step == self.config.steps
        began = time.perf_counter()
        tokens, targets = self.batches.at(step, "cuda")
        self.memory.note("start", "step")
        with self.region():
            loss = self.model(tokens, targets)
        loss.backward()
        self.memory.note("backward", "end")
        value, gradients = loss.item(), measure.gradient_hash(self.model)
        del loss
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        self.memory.note("optimizer", "end")
        taken = (time.perf_counter() - began) * 1e3
        offloaded = report.step_bytes(self.spillway.stats()) if self.spillway else report.nothing_offloaded()
        self.steps.append({"loss": value, "gradients": gradients, "ms": taken, **offloaded})

    def counts(self) -> dict[str, Any]:
        own = report.driver_counts(self.spillway.stats()) if self.spillway else {}
        return {"emulator": measure.emulator_counts(), "spillway": own}

    def result(self) -> dict[str, Any]:
        counts = self.counts()
        unordered = counts["emulator"].get("unordered")
        name = "emulated GPU" if self.config.device == "emulated" else torch.cuda.get_device_name()
        return {
            "ratio": self.config.ratio,
            "device_name": name,
            "cuda": torch.version.cuda,
            "parameters": sum(parameter.numel() for parameter in self.model.parameters()),
            "peak_device_bytes": torch.cuda.max_memory_reserved(),
            "peak_allocated_bytes": torch.cuda.max_memory_allocated(),
            "emulator_peak_bytes": measure.emulator_peak(),
            "unordered": unordered,
            "steps": self.steps,
            "steady": self.steady_from
            and {
                who: {name: counts[who][name] - before for name, before in self.steady_from[who].items()}
                for who in counts
            },
            "memory": self.memory.samples,
            **(report.totals(self.spillway.stats()) if self.spillway else report.no_totals()),
        }


if __name__ == "__main__":
    main(sys.argv[1:])
