# SPDX-License-Identifier: Apache-2.0
"""`python -m bench.gpu_results`: what scripts/gpu_check has found on a GPU of ours, for the README."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench.quote import Quote

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench" / "results" / "gpu"
QUOTE = Quote("gpu")
GIB = 2**30
WAYS = {
    "checkpoint": "checkpoint of each block",
    "save_on_cpu": "`torch.autograd.graph.save_on_cpu`",
    "trl": "TRL's `OffloadActivations`",
}


def newest() -> dict[str, Any]:
    return json.loads(max(RESULTS.glob("*.json")).read_text())


def of_limit(found: dict[str, Any]) -> str:
    """The least time that any plan could take, by what was recorded, over the time taken."""
    return f"{found['of_limit']:.0%}" if "of_limit" in found else ""


def rows(budgets: dict[str, Any]) -> list[str]:
    """Plain, budgets by the share of activations offloaded or recomputed, and alternatives beside a budget
    of the memory that they reserve."""
    plain = budgets["plain"]
    found = [("plain PyTorch", None, plain)]
    found += [
        (f"budget: {each['gone']:.0%} offloaded or recomputed", each["budget"], each)
        for each in budgets["budgets"]
    ]
    for way, each in budgets["ways"].items():
        found += [(WAYS[way], None, each)]
        found += [("budget of the same memory", each["ours"]["budget"], each["ours"])]
    return [
        f"| {name} | {f'{budget / GIB:.2f}' if budget else ''} | {each['reserved_from_second'] / GIB:.2f} "
        f"| {each['ms']:.1f} | {each['ms'] / plain['ms']:.3f} | {of_limit(each)} |"
        for name, budget, each in found
    ]


def section(found: dict[str, Any]) -> str:
    versions, claims, tests = found["versions"], found["conformance"], found["tests"]
    plain, *_, ratio_one = (variant["peak_device_bytes"] for variant in found["demo"]["variants"])
    link_in, link_out = (found["profile"][way]["rate"] / 1e9 for way in ("h2d", "d2h"))
    met = claims["claims"] - len(claims["failed"])
    lines = [
        f"{found['device']}, driver {found['driver']}, torch {versions['torch']}, Python "
        f"{versions['python']}, {found['date']}, `scripts/gpu_check`: eight layers of Llama 3 8B (batch 4, "
        "4096 tokens, bfloat16, AdamW), peak GiB reserved from the second step on, median of ten steps:",
        "",
        "| | budget, GiB | reserved, GiB | ms per step | x plain | optimality |",
        "|---|---|---|---|---|---|",
        *rows(found["budgets"]),
        "",
        f"The demonstration's losses and gradients are plain PyTorch's, bit for bit, in "
        f"{ratio_one / plain:.2f} of its memory with all activations offloaded. The link carries "
        f"{link_in:.1f} GB/s in and {link_out:.1f} GB/s out. The driver meets {met} of the "
        f"{claims['claims']} claims that the "
        f"emulated GPU is held to. Of {tests['ran']} tests on the GPU {tests['passed']} passed, "
        f"{tests['skipped']} were skipped (unsupported there), and {tests['failed']} failed. "
        f"{tests['since']}",
    ]
    return QUOTE.marked(lines)


def main() -> None:
    QUOTE.write(ROOT / "README.md", section(newest()))


if __name__ == "__main__":
    main()
