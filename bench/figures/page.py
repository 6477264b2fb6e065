# SPDX-License-Identifier: Apache-2.0
"""The figures that docs/results shows: written from a result, never by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench.figures.registry import FIGURES
from bench.quote import Quote

PAGE = Path(__file__).parents[2] / "docs" / "results" / "figures.md"
QUOTE = Quote("figures")

# What stands in place of a value that there is none of.
_ABSENT = {"needs-gpu": "needs a GPU", "short": "could not be measured"}


def section(result: dict[str, Any]) -> str:
    """The result as the page shows it, with the markers around it."""
    lines = [
        f"Measured on the {result['device']} with `{' '.join(result['command'])}`, {result['date']}, torch "
        f"{result['versions']['torch']}:",
        "",
        "| what | value | bound |",
        "|---|---|---|",
    ]
    for entry in result["figures"]:
        claim = " ".join(FIGURES[entry["name"]].claim.split())
        value = (
            f"{entry['value']:.4g} {entry['unit']}"
            if entry["value"] is not None
            else _ABSENT[entry["status"]]
        )
        missed = " (missed)" if entry["status"] == "short" and entry["value"] is not None else ""
        lines.append(f"| {claim} | {value} | {entry['bound']}{missed} |")
    return QUOTE.marked(lines)


def update(result: dict[str, Any]) -> None:
    QUOTE.write(PAGE, section(result))


def newest(results: Path) -> dict[str, Any]:
    """The latest result of all machines, those of `scripts/peers` aside. ValueError where there is none."""
    return json.loads(max(each for each in results.glob("*.json") if "peers" not in each.stem).read_text())
