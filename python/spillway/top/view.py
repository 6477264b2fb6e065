# SPDX-License-Identifier: Apache-2.0
"""The display of `spillway top`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from spillway.cannot_help import text
from spillway.report.sizes import count, percent, rate, size, span
from spillway.top.reading import Reading, TopError

__all__ = ["picture", "watch"]

_OLD = 5_000_000_000  # nanoseconds without news


def picture(readings: Sequence[Reading], before: Sequence[Reading | None]) -> RenderableType:
    """Speeds are over the time since the readings `before`, where there are any."""
    parts: list[RenderableType] = []
    for reading, earlier in zip(readings, before, strict=True):
        parts.append(_head(reading))
        parts.append(_devices(reading, earlier))
        if any(any((*device.resident.values(), *device.on_host.values())) for device in reading.devices):
            parts.append(_model_state(reading))
        if reading.tags:
            parts.append(_tags(reading, earlier))
        if reading.cannot_help:
            parts.append(Text(text(reading.cannot_help, reading.cannot_help_bytes), style="yellow"))
    return Group(*parts)


def _head(reading: Reading) -> Text:
    text = Text(f"process {reading.process}", style="bold")
    text.append(f", {count(reading.steps, 'step')}", style="not bold")
    if reading.tags:
        offloaded, offloadable = (
            sum(tag.offloaded for tag in reading.tags),
            sum(tag.offloadable for tag in reading.tags),
        )
        text.append(f", {size(offloaded)} of {size(offloadable)} offloaded in the last", style="not bold")
    if reading.emulated:
        text.append(", emulated GPU", style="yellow not bold")
    age = time.time_ns() - reading.updated
    if age > _OLD:
        text.append(f", no news for {span(age)}", style="yellow not bold")
    return text


def _devices(reading: Reading, earlier: Reading | None) -> Table:
    table = Table(show_edge=False, pad_edge=False)
    table.add_column("GPU")
    for name in ("capacity", "allocated", "peak", "reserved", "offloaded", "pinned", "to host", "to device"):
        table.add_column(name, justify="right")
    for index, device in enumerate(reading.devices):
        speeds = ("–", "–")
        if earlier is not None and index < len(earlier.devices):
            passed = reading.updated - earlier.updated
            was = earlier.devices[index]
            speeds = (
                rate(device.copied_out - was.copied_out, passed),
                rate(device.copied_in - was.copied_in, passed),
            )
        sizes = (
            size(device.capacity) if device.capacity else "–",
            size(device.allocated),
            size(device.allocated_peak),
            size(device.reserved) if reading.uses_spillway else "–",
            size(device.offloaded),
            size(device.pinned),
        )
        table.add_row(str(device.index), *sizes, *speeds)
    return table


def _model_state(reading: Reading) -> Table:
    table = Table(show_edge=False, pad_edge=False)
    table.add_column("GPU")
    table.add_column("model state")
    for name in ("on the GPU", "on the host"):
        table.add_column(name, justify="right")
    for device in reading.devices:
        for name, resident in device.resident.items():
            if resident or device.on_host[name]:
                on_host = size(device.on_host[name])
                table.add_row(str(device.index), name.replace("_", " "), size(resident), on_host)
    return table


def _tags(reading: Reading, earlier: Reading | None) -> Table:
    table = Table(show_edge=False, pad_edge=False)
    table.add_column("region")
    for name in ("offloaded", "share", "stalls", "stalled", "recently"):
        table.add_column(name, justify="right")
    known = {tag.name: tag for tag in earlier.tags} if earlier else {}
    passed = reading.updated - earlier.updated if earlier else 0
    for tag in sorted(reading.tags, key=lambda tag: (-tag.stalled, tag.name)):
        was = known.get(tag.name)
        recently = percent((tag.stalled - was.stalled) / passed) if was and passed > 0 else "–"
        share = percent(tag.offloaded / tag.offloadable) if tag.offloadable else "–"
        table.add_row(
            Text(tag.name or "(no tag)"),
            size(tag.offloaded),
            share,
            str(tag.stalls),
            span(tag.stalled),
            recently,
        )
    return table


def watch(look: Callable[[], list[Reading]], interval: float, console: Console) -> None:
    """Until an interrupt or the end of the processes. Off a terminal each look is printed."""
    before: list[Reading | None] = []
    with Live(console=console, auto_refresh=False) if console.is_terminal else nullcontext() as live:
        while True:
            try:
                readings = look()
            except TopError as error:
                ended = str(error)
                break
            if len(before) != len(readings):
                before = [None] * len(readings)
            seen = picture(readings, before)
            if live is None:
                console.print(seen)
                console.line()
            else:
                live.update(seen, refresh=True)
            before = [
                reading if earlier is None or reading.updated != earlier.updated else earlier
                for reading, earlier in zip(readings, before, strict=True)
            ]
            time.sleep(interval)
    console.print(ended, highlight=False, markup=False)
