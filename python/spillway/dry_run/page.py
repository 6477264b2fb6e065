# SPDX-License-Identifier: Apache-2.0
"""The page of one dry run, for a terminal."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from spillway.dry_run import words
from spillway.dry_run.answer import Answer
from spillway.report.sizes import percent, size

__all__ = ["show"]


def show(answer: Answer, profile: str, samples: float | None, console: Console) -> None:
    if not answer.processes:
        console.print(words.nothing(answer), highlight=False, markup=False)
        return
    for process in answer.processes:
        for device in process["devices"]:
            several = len(answer.devices) > 1
            title = words.title(process, device, profile, several)
            console.print(Text(title, style="bold"))
            for name, text in words.facts(process, device, samples, answer.status != 0):
                console.print(Text(f"  {name:<8}{text}"))
            if device.get("allocated_at_peak_bytes"):
                console.print(_held(device))
                console.print(_largest(device))
    console.print(Text(words.NOT_COMPARED, style="dim"))


def _table(title: str, **columns: Any) -> Table:
    table = Table(title=title, title_justify="left", title_style="", box=None, pad_edge=False)
    table.padding = (0, 1, 0, 1)
    for name, justify in columns.items():
        table.add_column(name.replace("_", " "), justify=justify, header_style="dim")
    return table


def _held(device: dict[str, Any]) -> Table:
    table = _table("  At the peak:", what="left", bytes="right", share="right")
    held = device["allocated_at_peak_bytes"]
    peak = device["peak_allocated_bytes"]
    for role, taken in {**held, "rounding": max(0, peak - sum(held.values()))}.items():
        if taken:
            table.add_row(words.role(role), size(taken), percent(taken / peak))
    return table


def _largest(device: dict[str, Any]) -> Table:
    table = _table(
        "  Largest blocks, by operator:", bytes="right", blocks="right", what="left", made_by="left"
    )
    largest = device["largest_at_peak"]
    for each, maker in zip(largest, words.makers(largest), strict=True):
        table.add_row(size(each["bytes"]), words.blocks(each), words.role(each["role"]), Text(maker))
    return table
