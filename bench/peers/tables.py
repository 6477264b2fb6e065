# SPDX-License-Identifier: Apache-2.0
"""The document as tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.figures.registry import show as show_claims
from bench.pages import peers_beside, peers_capacity
from bench.peers import model_state_page
from bench.results import table

KIB = 1024


def show(document: dict[str, Any], console: Console) -> None:
    versions = ", ".join(f"{name} {text}" for name, text in document["versions"].items() if text)
    console.print(f"{document['device']}: {versions}", highlight=False)
    for name, reason in document["missing"].items():
        if reason:
            console.print(f"{name} cannot be imported: {reason}", style="red", highlight=False, markup=False)
    budgets = document["budgets"]
    for shown in (
        hooks(document["hooks"]),
        *steps(document["memory"]),
        parts(document["sequential"]),
        table("Predicted steps of full-size models", *peers_beside(budgets)),
        table("Predicted tokens per second", *peers_capacity(budgets)),
        show_claims("Claims", document["claims"]),
    ):
        console.print(shown)


def show_state(document: dict[str, Any], console: Console) -> None:
    console.print(table("Bits, on the emulated GPU", *model_state_page.bits(document["bits"])))
    for batch, ways in document["full_size"].items():
        console.print(table(f"Dry runs, batch {batch}", *model_state_page.full_size(ways)))
    console.print(show_claims("Claims", document["claims"]))


def hooks(found: dict[str, dict[str, float]]) -> Table:
    names = dict.fromkeys(name for times in found.values() for name in times)
    return table(
        "CPU time per saved tensor, ns (and over an empty pair's)",
        ("", *(f"over {name}'s allocator" for name in found)),
        (
            (
                name,
                *(f"{times[name]:.0f} ({times[name] / times['empty pair']:.2f})" for times in found.values()),
            )
            for name in names
        ),
    )


def steps(found: dict[str, dict[str, Any]]) -> Iterator[Table]:
    """One for each model."""
    keys = ("peak", "offloaded", "out", "back")
    for model in next(iter(found.values())):
        rows = (
            (
                f"{name}, {allocator}",
                *_cells(variant, keys, KIB, ".0f", "equal" in variant and variant["equal"]),
            )
            for allocator, models in found.items()
            for name, variant in models[model].items()
        )
        yield table(f"{model}: a training step, KiB", ("", *keys, "bits"), rows)


def parts(found: dict[str, dict[str, Any]]) -> Table:
    keys = ("in", "out", "peak", "reserved")
    rows = (
        (
            f"{name}, activations {activations}",
            *_cells(
                variant,
                keys,
                variant.get("weights", 1),
                ".3f",
                variant.get("bits") == variants["plain, torch, 4"].get("bits"),
            ),
        )
        for activations, variants in found.items()
        for name, variant in variants.items()
    )
    return table("A model in parts, in units of its weights", ("", *keys, "bits"), rows)


def _cells(
    variant: dict[str, Any], keys: tuple[str, ...], unit: float, form: str, equal: bool
) -> tuple[str, ...]:
    if "failed" in variant:
        return (variant["failed"],)
    return (*(f"{variant[key] / unit:{form}}" for key in keys), "yes" if equal else "no")
