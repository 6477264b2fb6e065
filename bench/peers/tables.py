# SPDX-License-Identifier: Apache-2.0
"""The document as tables."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

KIB = 1024


def show(document: dict[str, Any], console: Console) -> None:
    versions = ", ".join(f"{name} {text}" for name, text in document["versions"].items() if text)
    console.print(f"{document['device']}: {versions}", highlight=False)
    for name, reason in document["missing"].items():
        if reason:
            console.print(f"{name} cannot be imported: {reason}", style="red", highlight=False, markup=False)
    for table in (
        hooks(document["hooks"]),
        *memory(document["memory"]),
        parts(document["sequential"]),
        *budgets(document["budgets"]),
    ):
        console.print(table)
    console.print(claims(document["claims"]))


def _table(title: str, *headings: str) -> Table:
    table = Table(title=title)
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="right" if number else "left")
    return table


def hooks(found: dict[str, dict[str, float]]) -> Table:
    table = _table(
        "CPU time per saved tensor, ns (and over an empty pair's)",
        "",
        *(f"over {n}'s allocator" for n in found),
    )
    names = dict.fromkeys(name for times in found.values() for name in times)
    for name in names:
        cells = [f"{t[name]:.0f} ({t[name] / t['empty pair']:.2f})" for t in found.values()]
        table.add_row(name, *cells)
    return table


def memory(found: dict[str, dict[str, Any]]) -> list[Table]:
    """One for each model."""
    return [_step(model, found) for model in next(iter(found.values()))]


def _step(model: str, found: dict[str, dict[str, Any]]) -> Table:
    table = _table(f"{model}: a training step, KiB", "", "peak", "offloaded", "out", "back", "bits")
    for allocator, models in found.items():
        for name, variant in models[model].items():
            heading = f"{name}, {allocator}"
            if "failed" in variant:
                table.add_row(heading, variant["failed"])
                continue
            numbers = [f"{variant[key] / KIB:.0f}" for key in ("peak", "offloaded", "out", "back")]
            table.add_row(heading, *numbers, "yes" if variant["equal"] else "no")
    return table


def parts(found: dict[str, dict[str, Any]]) -> Table:
    table = _table(
        "A model in parts, in units of its weights",
        "",
        "activations",
        "in",
        "out",
        "peak",
        "reserved",
        "bits",
    )
    for activations, variants in found.items():
        for name, variant in variants.items():
            if "failed" in variant:
                table.add_row(name, activations, variant["failed"])
                continue
            numbers = [
                f"{variant[key] / variant['weights']:.3f}" for key in ("in", "out", "peak", "reserved")
            ]
            equal = variant["bits"] == variants["plain, torch, 4"].get("bits")
            table.add_row(name, activations, *numbers, "yes" if equal else "no")
    return table


def budgets(found: dict[str, Any]) -> list[Table]:
    beside = _table("Predicted steps of full-size models", "", "way", "peak, GiB", "ms", "ours there, ms")
    for model, ways in found["beside"].items():
        for way, one in ways.items():
            ours = one.get("ours")
            times = [f"{one['ms']:.1f}", f"{ours['ms']:.1f}" if ours else ""]
            beside.add_row(model, way, f"{one['peak'] / KIB**3:.2f}", *times)
    capacity = _table("Predicted tokens per second", "batch", *found["capacity"])
    for batch in sorted({int(batch) for rates in found["capacity"].values() for batch in rates}):
        rates = [rates.get(str(batch)) for rates in found["capacity"].values()]
        capacity.add_row(str(batch), *(f"{rate:.0f}" if rate else "" for rate in rates))
    return [beside, capacity]


def claims(found: list[dict[str, Any]]) -> Table:
    table = _table("Claims", "", "value", "at most", "holds")
    for one in found:
        table.add_row(
            one["claim"], f"{one['value']:.3f}", f"{one['at_most']:.3f}", "yes" if one["holds"] else "no"
        )
    return table
