# SPDX-License-Identifier: Apache-2.0
"""The comparison as a table in the terminal."""

from __future__ import annotations

from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table
from spillway.demo.config import STEADY


def show(document: dict[str, Any], console: Console) -> None:
    """Prints the table and, below it, what could not be moved and why."""
    device = document["device_name"]
    emulated = document["device"] == "emulated"
    table = Table(title=f"{document['parameters'] / 1e6:.1f} M parameters on the {device}")
    for heading in (
        "arm",
        "peak device\nheld MiB",
        "peak device\nlive MiB",
        "to host\nMiB/step",
        "back\nMiB/step",
        "pinned host\npeak MiB",
        "step ms\n(emulated: CPU time)" if emulated else "step ms",
        "final loss",
        "losses equal\nbit for bit",
        "gradients equal\nbit for bit",
    ):
        table.add_column(heading, justify="left" if heading == "arm" else "right")
    for arm in document["arms"]:
        table.add_row(
            arm["name"],
            *(mebibytes(arm[key]) for key in ("peak_device_bytes", "peak_live_bytes")),
            *(mebibytes(arm[key]) for key in ("offloaded_bytes", "fetched_bytes", "host_peak_bytes")),
            f"{step_ms(arm):.0f}",
            f"{arm['losses'][-1]:.6f}",
            *(verdict(arm, key) for key in ("losses_equal_plain", "grads_equal_plain")),
        )
    console.print(table)
    for arm in document["arms"]:
        if arm["skipped"]:
            console.print(f"{arm['name']}: not moved per step: {skips(arm['skipped'])}", highlight=False)


def step_ms(arm: dict[str, Any]) -> float:
    """The median of the steady steps, or of all where there are too few."""
    return median(arm["step_ms"][STEADY - 1 :] or arm["step_ms"])


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
