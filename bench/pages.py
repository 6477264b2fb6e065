# SPDX-License-Identifier: Apache-2.0
"""`python -m bench.pages`: writes what pages show of the newest results, never edited by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.figures.registry import FIGURES
from bench.models import page as models_page
from bench.peers import model_state_page
from bench.peers.budgets import MODELS, WAYS
from bench.predictions import ledger
from bench.results import GIB, RESULTS, Quote, markdown, read

MIB = 1 << 20
# What stands in place of a value that there is none of.
_ABSENT = {"needs-gpu": "needs a GPU", "short": "could not be measured"}
_GPU_WAYS = {
    **WAYS,
    "checkpoint": "checkpoint of each block",
    "save_on_cpu": "`torch.autograd.graph.save_on_cpu`",
}
_GPU_WAYS["trl"] = "TRL's `OffloadActivations`"


@dataclass(frozen=True)
class Page:
    """What one page shows of one kind of result."""

    quote: Quote
    lines: Callable[[dict[str, Any]], list[str]]
    newest: Callable[[], dict[str, Any]]

    def update(self, result: dict[str, Any] | None = None) -> None:
        self.quote.write(self.lines(result or self.newest()))


def figures(result: dict[str, Any]) -> list[str]:
    def cells(entry: dict[str, Any]) -> tuple[str, ...]:
        known = entry["value"] is not None
        value = f"{entry['value']:.4g} {entry['unit']}" if known else _ABSENT[entry["status"]]
        missed = " (missed)" if entry["status"] == "short" and known else ""
        return " ".join(FIGURES[entry["name"]].claim.split()), value, f"{entry['bound']}{missed}"

    return [
        f"Measured on the {result['device']} with `{' '.join(result['command'])}`, {result['date']}, torch "
        f"{result['versions']['torch']}:",
        "",
        *markdown(("what", "value", "bound"), map(cells, result["figures"])),
    ]


def peers_beside(budgets: dict[str, Any]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Headings and rows: each way of saving memory, and a budget of what it reserves."""

    def cells(model: str, way: str, one: dict[str, Any]) -> tuple[str, ...]:
        ours = "" if way == "plain" else f"{one['ours']['ms']:.0f}"
        if way != "plain" and one["ours"]["budget"] >= one["reserved"] + MIB:
            ours += f" in {one['ours']['budget'] / GIB:.2f} GiB"
        name = WAYS.get(way, "plain PyTorch")
        return MODELS[model], name, f"{one['reserved'] / GIB:.2f}", f"{one['ms']:.0f}", ours

    return ("model", "way", "reserved, GiB", "ms a step", "with a budget, ms"), [
        cells(model, way, one) for model, ways in budgets["beside"].items() for way, one in ways.items()
    ]


def peers_capacity(budgets: dict[str, Any]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Headings and rows: tokens per second of each batch."""
    ways = [budgets["capacity"][way] for way in ("plain", "checkpoint", "ours")]
    batches = sorted({int(batch) for rates in ways for batch in rates})
    return ("batch", "plain PyTorch", "checkpoint each block", '`spillway.offload(budget="auto")`'), [
        (str(batch), *(f"{rates[str(batch)]:.0f}" if rates.get(str(batch)) else "" for rates in ways))
        for batch in batches
    ]


def peers(result: dict[str, Any]) -> list[str]:
    versions = result["versions"]
    used = ", ".join(f"{name} {versions[name]}" for name in ("torch", "trl", "torchtune") if versions[name])
    return [
        f"Predicted for an H200 by dry runs with `{' '.join(result['command'])}`, {result['date']}, {used}. "
        "Each way of saving memory, what the device holds then at its peak, and a budget of that, rounded up "
        "to a MiB; or the smallest budget, where that is more:",
        *(["", result["notes"]] if "notes" in result else []),
        "",
        *markdown(*peers_beside(result["budgets"])),
        "",
        "Full fine-tuning of Llama 3 8B, 32 layers, sequences of 4096, AdamW: tokens per second of each "
        "batch, and nothing where it does not fit:",
        "",
        *markdown(*peers_capacity(result["budgets"])),
    ]


def budgets_on_gpu(found: dict[str, Any]) -> list[tuple[str, ...]]:
    """Plain, budgets by the share of activations offloaded or recomputed, and alternatives beside a budget
    of the memory that they reserve."""
    plain = found["plain"]
    rows = [("plain PyTorch", None, plain)]
    rows += [
        (f"budget: {each['gone']:.0%} offloaded or recomputed", each["budget"], each)
        for each in found["budgets"]
    ]
    for way, each in found["ways"].items():
        rows += [(_GPU_WAYS[way], None, each)]
        rows += [("budget of the same memory", each["ours"]["budget"], each["ours"])]
    return [
        (
            name,
            f"{budget / GIB:.2f}" if budget else "",
            f"{each['reserved_from_second'] / GIB:.2f}",
            f"{each['ms']:.1f}",
            f"{each['ms'] / plain['ms']:.3f}",
            f"{each['of_limit']:.0%}" if "of_limit" in each else "",
        )
        for name, budget, each in rows
    ]


def gpu(found: dict[str, Any]) -> list[str]:
    versions, claims, tests = found["versions"], found["conformance"], found["tests"]
    plain, *_, ratio_one = (variant["peak_device_bytes"] for variant in found["demo"]["variants"])
    link_in, link_out = (found["profile"][way]["rate"] / 1e9 for way in ("h2d", "d2h"))
    met = claims["claims"] - len(claims["failed"])
    return [
        f"{found['device']}, driver {found['driver']}, torch {versions['torch']}, Python "
        f"{versions['python']}, {found['date']}, `scripts/gpu_check`: eight layers of Llama 3 8B (batch 4, "
        "4096 tokens, bfloat16, AdamW), peak GiB reserved from the second step on, median of ten steps:",
        "",
        *markdown(
            ("", "budget, GiB", "reserved, GiB", "ms per step", "x plain", "optimality"),
            budgets_on_gpu(found["budgets"]),
        ),
        "",
        f"The demonstration's losses and gradients are plain PyTorch's, bit for bit, in "
        f"{ratio_one / plain:.2f} of its memory with all activations offloaded. The link carries "
        f"{link_in:.1f} GB/s in and {link_out:.1f} GB/s out. The driver meets {met} of the "
        f"{claims['claims']} claims that the "
        f"emulated GPU is held to. Of {tests['ran']} tests on the GPU {tests['passed']} passed, "
        f"{tests['skipped']} were skipped (unsupported there), and {tests['failed']} failed. "
        f"{tests['since']}",
    ]


def newest(pattern: str, folder: Path = RESULTS, *without: str) -> Callable[[], dict[str, Any]]:
    """The latest result of all machines. ValueError where there is none."""
    return lambda: read(
        max(path for path in folder.glob(pattern) if not any(each in path.stem for each in without))
    )


PAGES = {
    "figures": Page(
        Quote("figures", "docs/results/figures.md"), figures, newest("*.json", RESULTS, "peers", "models")
    ),
    "peers": Page(Quote("peers", "docs/results/peers.md"), peers, newest("*-peers.json")),
    "peers-state": Page(
        Quote("peers-state", "docs/results/peers.md"), model_state_page.lines, newest("*-peers-state.json")
    ),
    "models": Page(Quote("models", "docs/results/models.md"), models_page.lines, newest("*-models.json")),
    "gpu": Page(Quote("gpu", "README.md"), gpu, newest("*.json", RESULTS / "gpu")),
    "predictions": Page(
        Quote("predictions", "docs/results/predictions.md"),
        lambda found: [ledger.summary(found)],
        ledger.read,
    ),
    "cases": Page(Quote("predictions", "docs/dry_run.md"), ledger.details, ledger.read),
}

if __name__ == "__main__":
    for page in PAGES.values():
        page.update()
