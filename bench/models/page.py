# SPDX-License-Identifier: Apache-2.0
"""What docs/results/models.md shows of them."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import Any

from bench.models.running import MODELS, NO_ROOM, WAYS
from bench.results import GIB, markdown

PACKAGES = ("torchvision", "timm", "diffusers", "transformers")
#: The steps whose times a row shows, from the third one on: the first ones record.
SHOWN = slice(2, 10)


def ratio(one: dict[str, Any]) -> float | None:
    """Time under a budget of the same memory, as a part of the way's own."""
    ours = one.get("ours", {})
    return ours["ms"] / one["ms"] if "ms" in ours else None


def why(one: dict[str, Any]) -> str:
    return NO_ROOM if one["failed"] == NO_ROOM else "failed"


def cells(one: dict[str, Any]) -> tuple[str, ...]:
    """Of a way: time, memory, and time and ratio under a budget of it."""
    if "failed" in one:
        return why(one), "", "", ""
    share = ratio(one)
    theirs = f"{one['ms']:.1f}", f"{one['reserved'] / GIB:.1f}"
    if share is None:
        return *theirs, why(one["ours"]), ""
    return *theirs, f"{one['ours']['ms']:.1f}", f"{share:.2f}"


def rows(found: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    for model, ways in found.items():
        plain = f"{ways['plain']['ms']:.1f}" if "ms" in ways["plain"] else why(ways["plain"])
        yield MODELS[model], plain, *(cell for way in WAYS for cell in cells(ways[way]))


def first_steps(found: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Times of the first steps in checkpointing's memory, as multiples of the settled one."""
    for model, ways in found.items():
        ours = ways["checkpoint"].get("ours", {})
        if "ms" in ours:
            yield MODELS[model], *(f"{each / ours['ms']:.2f}" for each in ours["steps"][SHOWN])


def optimalities(found: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Of the curve in checkpointing's memory: smallest budget, its optimality, worst above, and median."""
    for model, ways in found.items():
        curve = ways["checkpoint"].get("ours", {}).get("curve")
        if not curve:
            continue
        smallest, *others = curve
        peak = ways["checkpoint"]["reserved"]
        above = [point["optimality"] for point in curve if point["budget"] >= peak]
        yield (
            MODELS[model],
            f"{smallest['budget'] / GIB:.1f}",
            f"{smallest['optimality']:.2f}",
            f"{min(point['optimality'] for point in others):.2f}" if others else "",
            f"{min(above):.2f}" if above else "",
            f"{median(point['optimality'] for point in curve):.2f}",
        )


def slower(precisions: dict[str, dict[str, Any]]) -> list[str]:
    """Where checkpointing is faster than a budget of its memory."""
    return [
        f"{MODELS[model]} ({precision}, {way}: {share:.2f})"
        for precision, found in precisions.items()
        for model, ways in found.items()
        for way in WAYS
        if (share := ratio(ways[way])) is not None and share > 1
    ]


def lines(result: dict[str, Any]) -> list[str]:
    used = ", ".join(f"{name} {result['versions'][name]}" for name in ("torch", *PACKAGES))
    text = [f"Predicted by dry runs, `{' '.join(result['command'])}`, {result['date']}, {used}."]
    for profile, precisions in result["profiles"].items():
        for precision, found in precisions.items():
            text += ["", f"**`{profile}`, {precision}.**", ""]
            headings = ("model", "plain, ms")
            for way in WAYS:
                headings += f"{way}, ms", "GiB", "budget, ms", "ratio"
            text += markdown(headings, rows(found))
            text += ["", "The first steps, as multiples of the settled one:", ""]
            numbers = tuple(f"step {number + 1}" for number in range(SHOWN.start, SHOWN.stop))
            text += markdown(("model", *numbers), first_steps(found))
            headings = ("model", "smallest budget, GiB", "there", "worst above it")
            headings += "worst from checkpointing's peak on", "median"
            text += ["", "Predicted optimality of the plans for other budgets:", ""]
            text += markdown(headings, optimalities(found))
        compared = any(
            ratio(ways[way]) for found in precisions.values() for ways in found.values() for way in WAYS
        )
        if compared:
            text += ["", f"Slower than checkpointing: {', '.join(slower(precisions)) or 'none'}."]
    return text
