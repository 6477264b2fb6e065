# SPDX-License-Identifier: Apache-2.0
"""The report as one HTML page that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from html import escape
from pathlib import Path

from spillway.report import dry_run, model_state, plans, tables, words
from spillway.report.charts import legend, memory_chart, step_chart
from spillway.report.digests import Digest, Step
from spillway.report.memory import Usage
from spillway.report.sizes import count, percent, size, span

__all__ = ["page"]

_HERE = Path(__file__).parent
_MOST_STEPS = 12


def page(digests: Sequence[Digest]) -> str:
    """The processes of a job, one after the other."""
    body = "".join(_process(each, index, len(digests) > 1) for index, each in enumerate(digests))
    style = (_HERE / "page.css").read_text()
    script = (_HERE / "page.js").read_text()
    version = escape(digests[0].log.about["spillway"])
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        f"style-src '{_hash(style)}'; script-src '{_hash(script)}'; base-uri 'none'; form-action 'none'\">"
        f"<title>Spillway report</title><style>{style}</style></head><body><main>"
        f"<h1>Spillway report</h1>{body}"
        f"<footer>By spillway {version}. How to read it: docs/reports.md. Sizes are binary "
        "(1 MiB = 1048576 bytes), rates decimal. <code>trace.json</code> beside this page opens in "
        "Perfetto.</footer>"
        f"</main><script>{script}</script></body></html>\n"
    )


def _hash(text: str) -> str:
    """The hash by which a content security policy allows an inline script or style sheet."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _process(each: Digest, index: int, several: bool) -> str:
    about = each.log.about
    devices = ", ".join(f"{device['name']} ({size(device['bytes'])})" for device in about["devices"])
    parts = [
        f"<h2>{escape(each.log.name)}</h2>" if several else "",
        f'<p class="about">{escape(devices)} · {escape(words.when(each.log))} · '
        f"torch {escape(about['torch'])} · {count(len(each.log.steps), 'step')}</p>"
        f"<p><code>{escape(each.log.command)}</code></p>",
        *(f'<p class="notice">{escape(notice)}</p>' for notice in words.notices(each)),
        _cards(each),
        f'<ul class="facts" id="facts{index}">'
        + "".join(f"<li>{escape(fact)}</li>" for fact in words.facts(each))
        + "</ul>",
        dry_run.section(each.log),
        plans.section(each.log),
        model_state.section(each.log),
    ]
    for usage in each.usage.values():
        parts.append(_memory(each, usage))
    parts.append(_timeline(each, index))
    parts.append(tables.costs(each))
    parts.append(tables.sites(each))
    parts.append(tables.operators(each))
    parts.append(tables.tags(each))
    parts.append(tables.skipped(each))
    parts.append(tables.steps(each))
    return "".join(parts)


def _cards(each: Digest) -> str:
    usage = each.first
    least = "at least: " if each.log.detailed_until is not None else ""
    cards = [
        (size(usage.most), "peak of device memory"),
        (size(usage.most_without), f"{least}peak without offload"),
        (percent(each.copies.hidden_share), "of the copies' time hidden"),
        (span(each.copies.all.stalled), f"stalled, {count(each.copies.all.stalls, 'time')}"),
        (size(each.pinned_peak), "peak of pinned host memory"),
    ]
    return (
        '<div class="cards">'
        + "".join(f'<div class="card"><b>{value}</b><span>{name}</span></div>' for value, name in cards)
        + "</div>"
    )


def _memory(each: Digest, usage: Usage) -> str:
    chart = memory_chart(each, usage)
    if not chart:
        return ""
    keys = "".join(f'<li><i class="{kind}"></i>{escape(name)}</li>' for kind, name in legend(usage))
    return (
        f"<h2>Device memory over time{f', GPU {usage.index}' if len(each.usage) > 1 else ''}</h2>"
        f'<div class="wide">{chart}</div><ul class="key">{keys}'
        '<li><i class="dash"></i>with offloaded bytes: the peak without offload</li></ul>'
        f"<p>{escape(words.at_peak(usage))}</p>"
    )


def _timeline(each: Digest, index: int) -> str:
    if not each.steps:
        return ""
    chosen = _steps_to_draw(each.steps)
    options = "".join(f'<option value="{step.number}">step {step.number}</option>' for step in chosen[::-1])
    figures = "".join(
        f'<div class="wide" data-of="{index}" data-step="{step.number}"'
        f"{'' if step is chosen[-1] else ' hidden'}>{step_chart(each, step)}</div>"
        for step in chosen
    )
    return (
        "<h2>Copies against compute</h2>"
        f'<p><label>Show <select data-steps="{index}">{options}</select></label></p>{figures}'
        '<ul class="key"><li><i class="compute"></i>computing</li>'
        f"{'<li><i class=operator></i>an operator</li>' if each.log.operators else ''}"
        '<li><i class="stall"></i>stalled</li>'
        '<li><i class="out"></i>copies to the host</li><li><i class="in"></i>copies to the device</li></ul>'
    )


def _steps_to_draw(steps: Sequence[Step]) -> list[Step]:
    """The first ones, in which plans are made, and the last ones, which go by them."""
    if len(steps) <= _MOST_STEPS:
        return list(steps)
    return [*steps[:3], *steps[-(_MOST_STEPS - 3) :]]
