# SPDX-License-Identifier: Apache-2.0
"""What docs/results/peers.md shows of the comparison of model state."""

from __future__ import annotations

from typing import Any

from bench.peers.host import RATE
from bench.peers.model_state import ASKED, EAGER, PLAIN, PROFILE, SMALL_BUDGET, STEPS, WAYS, outcome
from bench.results import GIB, markdown

PACKAGES = ("torchao", "deepspeed", "bitsandbytes", "accelerate")
NAMES = {"steps": "plain steps", "clip": "clipping", "accumulate": "2 micro-batches", "schedule": "scheduler"}
#: What neither the emulated GPU nor a dry run can show, by way, from the sources named.
ELSEWHERE = (
    (
        "all that step on the host",
        "The emulated GPU runs a CPU's kernels, so an optimizer has the same bits on both. On a GPU it has "
        "others.",
        "pytorch/pytorch#117940",
    ),
    (
        "FSDP2 `CPUOffloadPolicy`",
        "The emulated GPU's process groups run over gloo. NCCL reduces nothing on the host, so clipping "
        "raises an error unless the group has a backend for the host too.",
        "pytorch/pytorch#148532",
    ),
    (
        "bitsandbytes' paged optimizers",
        "The emulated GPU has neither unified memory nor their CUDA kernels, such as "
        "`kOptimizer32bit2State`. States are single precision or 8 bits, also of bfloat16 parameters, so "
        "bits differ from plain PyTorch's. The driver moves unified memory by page faults.",
        "`bitsandbytes/optim/optimizer.py`, `init_state` and `get_paged`, version {bitsandbytes}",
    ),
    (
        "accelerate `cpu_offload`",
        "The hooks are made for inference. They replace parameters in each forward pass, so the "
        "optimizer's have no gradients.",
        "`accelerate/hooks.py`, `AlignDevicesHook`, version {accelerate}",
    ),
)


def shown(text: str) -> str:
    """In a cell of a table."""
    text = text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;").replace("*", "\\*")
    return text if len(text) <= 160 else f"{text[:157]}..."


def cell(found: dict[str, dict[str, Any]], way: str, name: str) -> str:
    """What came out, with both schedules where there were two."""
    late, eager = (
        outcome(found, way, each) if each in found[way] else "" for each in (name, f"{name}, {EAGER}")
    )
    return f"a race: {late}, or {eager}" if eager and late != eager else late


def bits(found: dict[str, dict[str, Any]]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    rows = []
    for way, runs in found.items():
        if "failed" in runs["steps"]:
            cells = [outcome(found, way, "steps"), *[""] * (len(ASKED) - 1)]
        else:
            cells = [cell(found, way, name) for name in ASKED]
        rows.append((WAYS[way], *map(shown, cells)))
        own = [f"{name}, own" for name in ASKED]
        if any(name in runs for name in own):
            cells = [shown(outcome(found, way, name)) if name in runs else "" for name in own]
            rows.append((f"{WAYS[way]}, its own options", *cells))
    return ("way", *(NAMES[name] for name in ASKED)), rows


def full_size(found: dict[str, Any]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    rows = []
    for way, one in found.items():
        if "failed" in one:
            rows.append((WAYS[way], "", "", shown(one["failed"]), "", ""))
            continue
        cells = [f"{one[kind] / GIB:.2f}" for kind in ("peak", "reserved")]
        if way in PLAIN:
            rows.append((WAYS[way], *cells, f"{one['ms']:.0f}", "", ""))
            continue
        ours = one["ours"]
        free = f"{one['free_ms']:.0f}" if one.get("free_ms") else "could not be measured"
        mine = shown(ours["failed"]) if "failed" in ours else f"{ours['ms']:.0f}"
        rows.append((WAYS[way], *cells, f"{one['ms']:.0f}", free, mine))
    headings = ("way", "peak, GiB", "reserved, GiB", "ms a step", "ms, host's arithmetic free")
    return (*headings, "the same memory as `--budget`, ms"), rows


def faster(found: dict[str, Any]) -> list[str]:
    """The ways that are faster than a budget of their memory, by batch."""
    names = []
    for batch, ways in found.items():
        for way, one in ways.items():
            ours = one.get("ours", {}).get("ms")
            if ours is None:
                continue
            if one["ms"] < ours:
                names.append(f"{WAYS[way]} (batch {batch})")
            elif one.get("free_ms") and one["free_ms"] < ours:
                names.append(f"{WAYS[way]} (batch {batch}, only with the host's arithmetic free)")
    return names


def lines(result: dict[str, Any]) -> list[str]:
    versions = result["versions"]
    used = ", ".join(f"{name} {versions[name]}" for name in ("torch", *PACKAGES) if versions[name])
    better = faster(result["full_size"])
    text = [
        f"`{' '.join(result['command'])}`, {result['date']}, {used}.",
        *(["", result["notes"]] if "notes" in result else []),
        "",
        f"**Bits, from the emulated GPU.** A Llama of 4 layers, bfloat16, AdamW, {STEPS} steps: losses and "
        "final parameters beside those of plain PyTorch, whose script asks for the same. `--budget` is "
        f"{SMALL_BUDGET}, less than half of what plain PyTorch reserves. *Equal*: every bit. *Apart*: the "
        "norm of the difference over the norm of what plain PyTorch's steps changed. *A race*: with each "
        "stream's work as late as the program allows, or as soon as it is submitted.",
        "",
        *markdown(*bits(result["bits"])),
        "",
        f"**Memory and time, from dry runs** (`spillway dry-run {PROFILE}`). 8 layers of Llama "
        "3 8B with 32000 words, 2.0 billion parameters, sequences of 4096, bfloat16, AdamW. A dry run does "
        "not model the host's arithmetic. Here each operator of the host takes the time of its bytes at "
        f"{RATE / 1e9:.0f} GB/s, which is assumed and favors those that step there; or no time.",
    ]
    for batch, ways in result["full_size"].items():
        text += ["", f"Batch {batch}:", "", *markdown(*full_size(ways))]
    text += [
        "",
        f"Faster than a budget of the same memory: {', '.join(better) if better else 'none'}.",
        "",
        "What neither shows, from documentation and sources, not measured here:",
        "",
        *markdown(
            ("way", "what", "source"),
            [
                (way, what, source.format(**{name: versions[name] for name in PACKAGES}))
                for way, what, source in ELSEWHERE
            ],
        ),
    ]
    return text
