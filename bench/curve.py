# SPDX-License-Identifier: Apache-2.0
"""`python -m bench.curve`: draws docs/curve.png, the budget curve of a full-size model in a dry run, beside
the alternatives that scripts/peers measured last."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt

from bench.figures.session import Session
from bench.pages import PAGES
from bench.peers.budgets import WAYS
from bench.results import GIB, ROOT

MODEL = "llama-8b-8-layers"
#: The actions for the bytes, from the axis up.
PARTS = (("kept", "#4c72b0"), ("offloaded", "#dd8452"), ("recomputed", "#55a868"))


def draw(found: dict[str, Any], ways: dict[str, Any], path: Path) -> None:
    """`found`: as probes/curve.py prints it; `ways`: reserved bytes and milliseconds by alternative."""
    points = [*found["explained"]["curve"], found["explained"]["chosen"]]
    points.sort(key=lambda point: point["budget"])
    budgets = [point["budget"] / GIB for point in points]
    figure, (times, parts) = plt.subplots(
        2, sharex=True, figsize=(8, 6.5), dpi=110, layout="constrained", height_ratios=(3, 2)
    )
    times.plot(budgets, [point["seconds"] * 1e3 for point in points], color="#222222", label="planned")
    times.plot(
        budgets,
        [point["bound"] * 1e3 for point in points],
        color="#999999",
        linestyle=":",
        label="lower bound of any plan",
    )
    times.plot(
        found["plain"]["reserved"] / GIB, found["plain"]["ms"], "o", color="#222222", label="plain PyTorch"
    )
    for (name, way), marker in zip(ways.items(), "sDv^", strict=False):
        times.plot(way["reserved"] / GIB, way["ms"], marker, label=WAYS.get(name, name))
    times.set_yscale("log")
    times.set_yticks([300, 400, 600, 1000, 1500], labels=["300", "400", "600", "1000", "1500"])
    times.minorticks_off()
    times.set_ylabel("predicted step time (ms)")
    times.legend(fontsize=8)
    parts.stackplot(
        budgets,
        [[point[part] / GIB for point in points] for part, _ in PARTS],
        colors=[color for _, color in PARTS],
        labels=["resident" if part == "kept" else part for part, _ in PARTS],
    )
    parts.set_ylabel("GiB saved for the backward pass")
    parts.set_xlabel("budget, or peak reserved memory (GiB)")
    parts.legend(loc="upper left", fontsize=8)
    for axes in (times, parts):
        axes.grid(alpha=0.25)
    figure.savefig(path, format="png")
    plt.close(figure)


def main() -> None:
    found = Session("emulated", Path()).dry("h200", "curve", MODEL, "0.5")
    peers = PAGES["peers"].newest()
    ways = {name: way for name, way in peers["budgets"]["beside"][MODEL].items() if name != "plain"}
    draw(found, ways, ROOT / "docs" / "curve.png")


if __name__ == "__main__":
    main()
