# SPDX-License-Identifier: Apache-2.0
"""The comparison as a table in the terminal."""

from __future__ import annotations

from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from spillway.demo.config import STEADY


def show(document: dict[str, Any], console: Console) -> None:
    """Prints the table, an arm per column, and below it what could not be moved and why."""
    arms = document["arms"]
    title = f"GPT of {document['parameters'] / 1e6:.1f} M parameters on the {document['device_name']}"
    table = Table(title=title)
    table.add_column("")
    for arm in arms:
        table.add_column(arm["name"], justify="right")
    for heading, key in (
        ("peak device memory, reserved (MiB)", "peak_device_bytes"),
        ("peak device memory, allocated (MiB)", "peak_allocated_bytes"),
        ("offloaded per step (MiB)", "offloaded_bytes"),
        ("fetched per step (MiB)", "fetched_bytes"),
        ("pinned host memory, peak (MiB)", "host_peak_bytes"),
    ):
        table.add_row(heading, *(mebibytes(arm[key]) for arm in arms))
    kind = "emulated: CPU time" if document["device"] == "emulated" else "median"
    table.add_row(f"step time ({kind}, ms)", *(f"{step_ms(arm):.0f}" for arm in arms))
    table.add_row("final loss", *(f"{arm['losses'][-1]:.6f}" for arm in arms))
    for heading, key in (("losses", "losses_equal_plain"), ("gradients", "grads_equal_plain")):
        table.add_row(f"{heading} equal plain's, bit for bit", *(verdict(arm, key) for arm in arms))
    console.print(table)
    for arm in arms:
        if arm["skipped"]:
            console.print(f"{arm['name']}: not offloaded per step: {skips(arm['skipped'])}", highlight=False)


def step_ms(arm: dict[str, Any]) -> float:
    """The median of the steady steps, or of all steps if there are too few."""
    steps: list[float] = arm["step_ms"]
    return median(steps[STEADY - 1 :] or steps)


def mebibytes(count: int) -> str:
    return f"{count / 2**20:.1f}"


def verdict(arm: dict[str, Any], key: str) -> str:
    if arm["name"] == "plain":
        return "-"
    return "yes" if arm[key] else "NO"


def skips(skipped: dict[str, dict[str, int]]) -> str:
    return ", ".join(
        f"{reason.replace('_', ' ')} {mebibytes(count['bytes'])} MiB ({count['storages']} storages)"
        for reason, count in sorted(skipped.items())
    )
