# SPDX-License-Identifier: Apache-2.0
"""Ways to train with model state on the host: real bits on the emulated GPU, memory and time by dry runs."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench.results import ROOT, RunFailed, last_json, output_of

PROFILE = "h200"
MIB = 1 << 20
WAYS = {
    "plain": "plain PyTorch",
    "fused": "plain PyTorch, `fused=True`",
    "spillway": "Spillway's `--budget`",
    "torchao": "torchao `CPUOffloadOptimizer`",
    "torchao-gradients": "torchao `CPUOffloadOptimizer`, `offload_gradients=True`",
    "zero-offload": "DeepSpeed ZeRO-Offload",
    "zero-infinity": "DeepSpeed ZeRO-Infinity",
    "fsdp2": "FSDP2 `CPUOffloadPolicy`",
    "bitsandbytes": "bitsandbytes `PagedAdamW32bit`",
    "bitsandbytes-8bit": "bitsandbytes `PagedAdamW8bit`",
    "accelerate-hooks": "accelerate `cpu_offload`",
    "accelerate-whole": "accelerate `cpu_offload_with_hook`",
}
PLAIN = ("plain", "fused")
#: What the script asks for, beside plain steps.
ASKED = {"steps": (), "clip": ("clip",), "accumulate": ("accumulate",), "schedule": ("schedule",)}
#: Those with options of their own for what the script asks for.
WITH_OPTIONS = ("zero-offload", "zero-infinity")
#: Work of a stream runs as soon as it is submitted; otherwise as late as the program allows.
EAGER = "eager"
STEPS = "4"
#: Of plain's 0.13 GiB of model state about half.
SMALL_BUDGET = "64MiB"
BATCHES = (1, 4)
DRY_STEPS = "6"
#: Plans settle after some 5 to 40 steps.
PLANNED_STEPS = "40"
#: DeepSpeed compiles its optimizer for the host; torch keeps it here.
EXTENSIONS = ROOT / "build" / "peers" / "extensions"
AT_A_TIME = 2

Run = Callable[..., dict[str, Any]]


def launched(how: list[str], *arguments: str) -> dict[str, Any]:
    """What probes/train.py prints under Spillway's command `how`, or how it ended without."""
    probe = [sys.executable, "-m", "bench.peers.probes.train", *arguments]
    settings = {"TORCH_EXTENSIONS_DIR": str(EXTENSIONS), "CUBLAS_WORKSPACE_CONFIG": ":16:1"}
    environment = {**os.environ, **settings}
    try:
        return last_json(
            output_of([sys.executable, "-m", "spillway", *how, "--", *probe], environment, 600, tail=3)
        )
    except RunFailed as failure:
        lines = [line for line in str(failure).splitlines()[1:] if line.endswith("is not emulated")]
        said = lines[0].partition(": ")[2] if lines else str(failure).splitlines()[-1]
        return {"failed": f"cannot run: {said}" if lines else said, "steps": []}


def emulated(way: str, *options: str) -> dict[str, Any]:
    """Real bits. The script of Spillway's way is plain PyTorch's."""
    how = ["emulate", "--schedule", EAGER if EAGER in options else "late"]
    options = tuple(each for each in options if each != EAGER)
    if way == "spillway":
        return launched([*how, "--budget", SMALL_BUDGET], "plain", "small", STEPS, *options)
    return launched(how, way, "small", STEPS, *options)


def dry(way: str, batch: int, *options: str, budget: int = 0) -> dict[str, Any]:
    """Peak and reserved bytes and milliseconds of the last steps, or how it failed."""
    how = ["dry-run", PROFILE] + ([f"--budget={budget}"] if budget else [])
    steps = PLANNED_STEPS if budget else DRY_STEPS
    found = launched(how, way, f"full-{batch}", steps, *options)
    if "failed" in found:
        return {"failed": found["failed"]}
    times = [step["ms"] for step in found["steps"] if "ms" in step][-10:]
    times = times[-1:] if not budget else sorted(times)
    last = {kind: max(step[kind] for step in found["steps"][1:]) for kind in ("peak", "reserved")}
    return {**last, "ms": times[len(times) // 2]}


def prepare() -> None:
    """Compiles what DeepSpeed compiles at its first use, without the emulated GPU. Raises RunFailed."""
    program = "from deepspeed.ops.op_builder import CPUAdamBuilder; CPUAdamBuilder().load()"
    output_of([sys.executable, "-c", program], {**os.environ, "TORCH_EXTENSIONS_DIR": str(EXTENSIONS)})


def variants(way: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Clipping writes gradients between the backward pass and the step: so with two schedules."""
    yield from ASKED.items()
    yield f"clip, {EAGER}", (*ASKED["clip"], EAGER)
    if way in WITH_OPTIONS:
        yield from ((f"{name}, own", (*how, "own")) for name, how in ASKED.items() if how)


def bits(run: Run = emulated) -> dict[str, dict[str, Any]]:
    """By way and by what is asked: what came out, and how far the parameters are from plain's."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(AT_A_TIME) as pool:

        def started(way: str, name: str, how: tuple[str, ...]) -> dict[str, Any]:
            return run(way, *how, f"to={Path(folder) / f'{way}, {name}.pt'}")

        first = {way: pool.submit(started, way, "steps", ASKED["steps"]) for way in WAYS}
        found = {way: {"steps": one.result()} for way, one in first.items()}
        more = {
            (way, name): pool.submit(started, way, name, how)
            for way, runs in found.items()
            if "failed" not in runs["steps"]
            for name, how in variants(way)
            if name != "steps"
        }
        for (way, name), one in more.items():
            found[way][name] = one.result()
        for way, name in ((way, name) for way, runs in found.items() for name in runs):
            ours, plain = (
                Path(folder) / f"{each}.pt" for each in (f"{way}, {name}", f"plain, {name.split(',')[0]}")
            )
            if ours.exists() and plain.exists() and way != "plain":
                found[way][name]["apart"] = apart(ours, plain)
    return found


def apart(one: Path, plain: Path) -> float:
    """Of the updates of all parameters: norm of the difference over the norm of plain's."""
    import torch

    from bench.peers.llama import SMALL, llama

    before = [each.detach().double() for each in llama(SMALL).parameters()]
    ours, theirs = (torch.load(path) for path in (one, plain))
    pairs = zip(ours, theirs, before, strict=True)
    norms = [((a - b).norm() ** 2, (b - start).norm() ** 2) for a, b, start in pairs]
    return float((sum(a for a, _ in norms) / sum(b for _, b in norms)) ** 0.5)


def outcome(found: dict[str, dict[str, Any]], way: str, name: str) -> str:
    """In words: whose bits, or what was raised, or that the script's request changed nothing."""
    one, asked = found[way][name], name.split(",")[0]
    if "failed" in one:
        return one["failed"] if one["failed"].startswith("cannot run") else f"raises {one['failed']}"
    result = (one["losses"], one["parameters"])
    for whose, words in (("plain", "equal"), ("fused", "equal to `fused=True`")):
        other = found[whose][asked]
        if result == (other.get("losses"), other.get("parameters")):
            return words
    if one.get("unchanged"):
        return "silently trains nothing"
    steps = found[way]["steps"]
    if asked in ("clip", "schedule") and one["parameters"] == steps.get("parameters"):
        return "silently ignored"
    return f"other bits: updates {one['apart']:.1%} apart"


def full_size(run: Run = dry) -> dict[str, dict[str, Any]]:
    """By batch and way: with the host's arithmetic at its rate and free, and a budget of what it reserves."""
    found: dict[str, dict[str, Any]] = {}
    with ThreadPoolExecutor(1) as pool:  # DeepSpeed's buffers on the host can take half of a small machine
        for batch in BATCHES:
            ways = [way for way in WAYS if way != "spillway"]
            runs = {way: pool.submit(run, way, batch) for way in ways}
            free = {way: pool.submit(run, way, batch, "free") for way in ways if way not in PLAIN}
            rows = {way: one.result() for way, one in runs.items()}
            for way, one in free.items():
                rows[way] |= {"free_ms": one.result().get("ms")}
            budgets = {
                way: -(-one["reserved"] // MIB) * MIB for way, one in rows.items() if "reserved" in one
            }
            ours = {
                way: pool.submit(run, "plain", batch, budget=budget)
                for way, budget in budgets.items()
                if way not in PLAIN
            }
            for way, one in ours.items():
                rows[way]["ours"] = {"budget": budgets[way], **one.result()}
            found[str(batch)] = rows
    return found


def slower(found: dict[str, dict[str, Any]]) -> dict[str, float]:
    """By way, of the worst batch: time, ours / its, with the host's arithmetic at its rate."""
    worst: dict[str, float] = {}
    for ways in found.values():
        for way, one in ways.items():
            if "ours" in one:
                ratio = one["ours"].get("ms", float("inf")) / one["ms"]
                worst[way] = max(ratio, worst.get(way, 0.0))
    return worst


def measure() -> dict[str, Any]:
    prepare()
    return {"bits": bits(), "full_size": full_size()}
