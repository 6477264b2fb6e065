# SPDX-License-Identifier: Apache-2.0
"""What docs/results shows of other ways to save memory: written from a result, never by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench.peers.budgets import MODELS, WAYS
from bench.quote import Quote

PAGE = Path(__file__).parents[2] / "docs" / "results" / "peers.md"
QUOTE = Quote("peers")
MIB = 1 << 20
GIB = 1 << 30


def section(result: dict[str, Any]) -> str:
    """The result as the page shows it, with the markers around it."""
    versions = result["versions"]
    used = ", ".join(f"{name} {versions[name]}" for name in ("torch", "trl", "torchtune") if versions[name])
    lines = [
        f"Predicted for an H200 by dry runs with `{' '.join(result['command'])}`, {result['date']}, {used}. "
        "Each way of saving memory, what the device holds then at its peak, and a budget of that, rounded up "
        "to a MiB; or the smallest budget, where that is more:",
        *(["", result["notes"]] if "notes" in result else []),
        "",
        "| model | way | reserved, GiB | ms a step | with a budget, ms |",
        "|---|---|---|---|---|",
    ]
    for model, ways in result["budgets"]["beside"].items():
        for way, one in ways.items():
            ours = "" if way == "plain" else f"{one['ours']['ms']:.0f}"
            if way != "plain" and one["ours"]["budget"] >= one["reserved"] + MIB:
                ours += f" in {one['ours']['budget'] / GIB:.2f} GiB"
            name = WAYS.get(way, "plain PyTorch")
            lines.append(
                f"| {MODELS[model]} | {name} | {one['reserved'] / GIB:.2f} | {one['ms']:.0f} | {ours} |"
            )
    capacity = result["budgets"]["capacity"]
    batches = sorted({int(batch) for rates in capacity.values() for batch in rates})
    lines += [
        "",
        "Full fine-tuning of Llama 3 8B, 32 layers, sequences of 4096, AdamW: tokens per second of each "
        "batch, and nothing where it does not fit:",
        "",
        '| batch | plain PyTorch | checkpoint each block | `spillway.offload(budget="auto")` |',
        "|---|---|---|---|",
    ]
    for batch in batches:
        rates = [capacity[way].get(str(batch)) for way in ("plain", "checkpoint", "ours")]
        cells = [f"{rate:.0f}" if rate else "" for rate in rates]
        lines.append(f"| {batch} | {' | '.join(cells)} |")
    return QUOTE.marked(lines)


def update(result: dict[str, Any]) -> None:
    QUOTE.write(PAGE, section(result))


def newest(results: Path) -> dict[str, Any]:
    """The latest result of `scripts/peers`. ValueError where there is none."""
    return json.loads(max(results.glob("*-peers.json")).read_text())
