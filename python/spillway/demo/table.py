# SPDX-License-Identifier: Apache-2.0
"""The comparison as a table in the terminal."""

from __future__ import annotations

from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from spillway.demo.config import STEADY


def show(document: dict[str, Any], console: Console) -> None:
    """Prints the table, a variant per column, and below it what was not offloaded and why."""
    variants = document["variants"]
    title = f"GPT of {document['parameters'] / 1e6:.1f} M parameters on the {document['device_name']}"
    table = Table(title=title)
    table.add_column("")
    for variant in variants:
        table.add_column(variant["name"], justify="right")
    for heading, key in (
        ("peak device memory, reserved (MiB)", "peak_device_bytes"),
        ("peak device memory, allocated (MiB)", "peak_allocated_bytes"),
        ("offloaded per step (MiB)", "offloaded_bytes"),
        ("fetched per step (MiB)", "fetched_bytes"),
        ("pinned host memory, peak (MiB)", "host_peak_bytes"),
    ):
        table.add_row(heading, *(mebibytes(variant[key]) for variant in variants))
    kind = "emulated: CPU time" if document["device"] == "emulated" else "median"
    table.add_row(f"step time ({kind}, ms)", *(f"{step_ms(variant):.0f}" for variant in variants))
    table.add_row("final loss", *(f"{variant['losses'][-1]:.6f}" for variant in variants))
    for heading, key in (("losses", "losses_equal_plain"), ("gradients", "grads_equal_plain")):
        table.add_row(
            f"{heading} equal plain's, bit for bit", *(verdict(variant, key) for variant in variants)
        )
    console.print(table)
    for variant in variants:
        if variant["skipped"]:
            console.print(
                f"{variant['name']}: not offloaded per step: {skips(variant['skipped'])}", highlight=False
            )


def step_ms(variant: dict[str, Any]) -> float:
    """The median of the steady steps, or of all steps if there are too few."""
    steps: list[float] = variant["step_ms"]
    return median(steps[STEADY - 1 :] or steps)


def mebibytes(count: int) -> str:
    return f"{count / 2**20:.1f}"


def verdict(variant: dict[str, Any], key: str) -> str:
    if variant["name"] == "plain":
        return "-"
    return "yes" if variant[key] else "NO"


def skips(skipped: dict[str, dict[str, int]]) -> str:
    return ", ".join(
        f"{reason.replace('_', ' ')} {mebibytes(count['bytes'])} MiB ({count['storages']} storages)"
        for reason, count in sorted(skipped.items())
    )
