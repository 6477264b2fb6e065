# SPDX-License-Identifier: Apache-2.0
"""The results of a dry run, as a part of the page."""

from __future__ import annotations

import contextlib
from html import escape
from typing import Any

from spillway._files import read_text
from spillway._text import parse_json
from spillway.dry_run import words
from spillway.dry_run.answer import SUFFIX
from spillway.report.log import RunLog, one_line_if_damaged
from spillway.report.sizes import percent, size
from spillway.report.tables import table

__all__ = ["section"]


def section(log: RunLog) -> str:
    """Empty where the run was no dry one, or has not ended yet. Raises ReportError."""
    process: dict[str, Any] = {"devices": []}
    path = log.path.with_suffix(SUFFIX)
    with contextlib.suppress(OSError, ValueError):
        process = parse_json(read_text(path))
    with one_line_if_damaged(path):
        parts = [_device(process, device) for device in process["devices"]]
    return f"<h2>Dry run</h2>{''.join(parts)}<p>{escape(words.NOT_COMPARED)}</p>" if parts else ""


def _device(process: dict[str, Any], device: dict[str, Any]) -> str:
    title = words.title(process, device, process["profile"], len(process["devices"]) > 1)
    facts_of_it = words.facts(process, device, process["samples_per_step"])
    facts = (f"<li>{escape(f'{name}: {text}')}</li>" for name, text in facts_of_it)
    peak = device["peak_allocated_bytes"]
    held = [
        (words.role(role), size(taken), percent(taken / peak))
        for role, taken in device.get("allocated_at_peak_bytes", {}).items()
    ]
    holders = device.get("largest_at_peak", [])
    largest = [
        (maker, words.role(each["role"]), words.blocks(each), size(each["bytes"]))
        for each, maker in zip(holders, words.makers(holders), strict=True)
    ]
    return (
        f'<p>{escape(title)}</p><ul class="facts">{"".join(facts)}</ul>'
        + table(("at the peak", "bytes", "share"), held)
        + table(("made by", "what", "blocks", "bytes"), largest, left=2)
    )
