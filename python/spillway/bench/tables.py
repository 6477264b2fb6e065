# SPDX-License-Identifier: Apache-2.0
"""Measurements as tables for a terminal."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from spillway.bench.results import Measured, families, read
from spillway.report.sizes import span

_HEADINGS = {
    "GB_per_s": "GB/s",
    "overlap": "overlap",
    "slow_down": "slow-down",
    "kernel_us": "kernel us",
    "copies_us": "copies us",
    "touch_GB_per_s": "touch GB/s",
    "register_GB_per_s": "register GB/s",
    "reserve_us": "reserve us",
    "create_us": "create us",
    "map_us": "map us",
    "access_us": "access us",
    "unmap_us": "unmap us",
    "release_us": "release us",
    "pinned_over_allocated": "pinned / allocated",
    "driver_allocations": "driver allocations",
}
_HIDDEN = {"bytes", "flops", "launches"}  # of the benchmark, not of the machine


def show(document: dict[str, Any], console: Console) -> None:
    clock = ", virtual clock" if document["device_clock"] == "virtual" else ""
    for results in document["programs"].values():
        for family, measured in families(read(results)).items():
            label = next((f", {one.label}" for one in measured if one.label), clock)
            console.print(_table(f"{family} · {document['device']}{label}", measured))
            console.print()


def _table(title: str, measured: list[Measured]) -> Table:
    known = list(_HEADINGS)
    found = {key for one in measured for key in one.counters} - _HIDDEN
    counters = sorted(found, key=lambda key: (known.index(key) if key in known else len(known), key))
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column("", no_wrap=True)
    for heading in ("median", "least", "most", *(_HEADINGS.get(key, key) for key in counters)):
        table.add_column(heading, justify="right", no_wrap=True)
    for one in measured:
        if one.skipped is not None:
            table.add_row(one.parameters, Text(one.skipped, style="yellow"))
            continue
        values = [f"{one.counters[key]:.4g}" if key in one.counters else "" for key in counters]
        table.add_row(
            one.parameters, *(span(1e9 * each) for each in (one.median, one.least, one.most)), *values
        )
    return table
