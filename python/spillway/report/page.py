# SPDX-License-Identifier: Apache-2.0
"""The report as one HTML page that needs nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from spillway.report import words
from spillway.report.charts import legend, memory_chart, step_chart
from spillway.report.digest import REASONS, REFUSERS, Digest, Step
from spillway.report.memory import Usage
from spillway.report.operators import by_name, by_tag
from spillway.report.sizes import count, percent, rate, size, span

__all__ = ["page"]

_HERE = Path(__file__).parent
_MOST_TAGS = 40
_MOST_SITES = 15
_MOST_STEPS = 12


def page(digests: Sequence[Digest]) -> str:
    """The processes of a job, one after the other."""
    body = "".join(_process(each, place, len(digests) > 1) for place, each in enumerate(digests))
    style = (_HERE / "page.css").read_text()
    script = (_HERE / "page.js").read_text()
    version = escape(digests[0].log.about["spillway"])
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">"
        f"<title>Spillway report</title><style>{style}</style></head><body><main>"
        f"<h1>Spillway report</h1>{body}"
        f"<footer>By spillway {version}. How to read it: docs/reports.md. Sizes are binary "
        "(1 MiB = 1048576 bytes), rates decimal. <code>trace.json</code> beside this page opens in "
        "Perfetto.</footer>"
        f"</main><script>{script}</script></body></html>\n"
    )


def _process(each: Digest, place: int, several: bool) -> str:
    about = each.log.about
    devices = ", ".join(f"{device['name']} ({size(device['bytes'])})" for device in about["devices"])
    parts = [
        f"<h2>{escape(each.log.name)}</h2>" if several else "",
        f'<p class="about">{escape(devices)} · {escape(words.when(each.log))} · '
        f"torch {escape(about['torch'])} · {count(len(each.log.steps), 'step')}</p>"
        f"<p><code>{escape(each.log.command)}</code></p>",
        *(f'<p class="notice">{escape(notice)}</p>' for notice in words.notices(each)),
        _cards(each),
        f'<ul class="facts" id="facts{place}">'
        + "".join(f"<li>{escape(fact)}</li>" for fact in words.facts(each))
        + "</ul>",
    ]
    for usage in each.usage.values():
        parts.append(_memory(each, usage))
    parts.append(_timeline(each, place))
    parts.append(_costs(each))
    parts.append(_sites(each))
    parts.append(_operators(each))
    parts.append(_tags(each))
    parts.append(_stayed(each))
    parts.append(_steps(each))
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
        '<li><i class="dash"></i>with what was away: without offload</li></ul>'
        f"<p>{escape(words.at_peak(usage))}</p>"
    )


def _timeline(each: Digest, place: int) -> str:
    if not each.steps:
        return ""
    chosen = _steps_to_draw(each.steps)
    options = "".join(f'<option value="{step.number}">step {step.number}</option>' for step in chosen[::-1])
    figures = "".join(
        f'<div class="wide" data-of="{place}" data-step="{step.number}"'
        f"{'' if step is chosen[-1] else ' hidden'}>{step_chart(each, step)}</div>"
        for step in chosen
    )
    return (
        "<h2>Copies against compute</h2>"
        f'<p><label>Show <select data-steps="{place}">{options}</select></label></p>{figures}'
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


def _table(header: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> str:
    """The first `left` columns are words, the others numbers."""
    kinds = ['class="left"' if place < left else "" for place in range(len(header))]
    head = "".join(f"<th {kind}>{escape(name)}</th>" for kind, name in zip(kinds, header, strict=True))
    body = "".join(
        "<tr>"
        + "".join(f"<td {kind}>{escape(cell)}</td>" for kind, cell in zip(kinds, row, strict=True))
        + "</tr>"
        for row in rows
    )
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _costs(each: Digest) -> str:
    header = (
        "region",
        "could move",
        "moved",
        "copied out",
        "copied in",
        "speed out",
        "speed in",
        "stalls",
        "stalled",
    )
    rows = []
    for tag in sorted({*each.regions, *each.copies.tags}):
        sums = each.regions.get(tag)
        costs = each.copies.tags.get(tag)
        rows.append(
            (
                tag or "(no tag)",
                size(sums["movable"]) if sums else "–",
                size(sums["moved"]) if sums else "–",
                size(costs.out_bytes) if costs else "–",
                size(costs.in_bytes) if costs else "–",
                rate(costs.out_bytes, costs.out_time) if costs else "–",
                rate(costs.in_bytes, costs.in_time) if costs else "–",
                str(costs.stalls) if costs else "0",
                span(costs.stalled) if costs else span(0),
            )
        )
    if not rows:
        return "<h2>What moved, by region</h2><p class='none'>Nothing moved.</p>"
    return f"<h2>What moved, by region</h2><p>{words.costs_of(each)}</p>{_table(header, rows)}"


def _sites(each: Digest) -> str:
    if not each.sites:
        return ""
    header = ("size", "tag", "made by", "saved at", "region", "times", "copies out", "copies in", "stalled")
    rows = [
        (
            size(site.bytes),
            site.memory or "(untagged)",
            words.makers(site),
            words.lines(site),
            site.region or "(no tag)",
            str(site.times),
            span(site.costs.out_time),
            span(site.costs.in_time),
            span(site.costs.stalled),
        )
        for site in each.sites[:_MOST_SITES]
    ]
    more = len(each.sites) - len(rows)
    rest = f"<p class='none'>and {more} kinds of smaller ones</p>" if more > 0 else ""
    return f"<h2>The largest things moved</h2>{_table(header, rows, 5)}{rest}"


def _operators(each: Digest) -> str:
    tables = (
        ("operator", by_name(each.log.operators)),
        ("tag", by_tag(each.log.operators)),
        ("kernel", by_name(each.log.kernels)),
    )
    parts = []
    for what, times in tables:
        if not times:
            continue
        all_time = sum(time.total for time in times) or 1
        rows = [
            (
                time.what or "(untagged)",
                str(time.calls),
                span(time.total),
                percent(time.total / all_time),
                span(time.total // time.calls),
                span(time.longest),
            )
            for time in times[:_MOST_SITES]
        ]
        parts.append(_table((what, "calls", "time", "of all", "mean", "longest"), rows))
        if len(times) > len(rows):
            parts.append(f"<p class='none'>and {len(times) - len(rows)} with less</p>")
    return f"<h2>What the computation did</h2>{''.join(parts)}" if parts else ""


def _tags(each: Digest) -> str:
    parts = []
    for usage in each.usage.values():
        if not usage.tag_peaks:
            continue
        ranked = sorted(usage.tag_peaks, key=lambda tag: (-usage.tag_peaks[tag], tag))
        rows = [
            (
                tag or "(untagged)",
                size(usage.tag_peaks[tag]),
                size(usage.peak.tags.get(tag, 0)),
                size(usage.tag_bytes[tag]),
                str(usage.tag_blocks[tag]),
            )
            for tag in ranked[:_MOST_TAGS]
        ]
        name = f", GPU {usage.index}" if len(each.usage) > 1 else ""
        header = ("tag", "own peak", "at the device's peak", "allocated in all", "blocks")
        more = len(ranked) - len(rows)
        rest = f"<p class='none'>and {more} tags with less</p>" if more > 0 else ""
        parts.append(f"<h2>Device memory by tag{name}</h2>{_table(header, rows)}{rest}")
    return "".join(parts)


def _stayed(each: Digest) -> str:
    parts = ["<h2>What stayed on the device, and why</h2>"]
    movable, moved = (sum(sums[what] for sums in each.regions.values()) for what in ("movable", "moved"))
    if movable > moved:
        parts.append(f"<p>Of {size(movable)} that could move, {size(moved)} did. What had to stay:</p>")
    if each.stayed:
        rows = [
            (REASONS.get(reason, reason), reason, str(kept["storages"]), size(kept["bytes"]))
            for reason, kept in sorted(each.stayed.items(), key=lambda item: -item[1]["bytes"])
        ]
        parts.append(_table(("reason", "counted as", "storages", "bytes"), rows, 2))
    else:
        parts.append("<p class='none'>Nothing that was saved for a backward pass had to stay.</p>")
    for who, times in sorted(each.refused.items()):
        parts.append(
            f"<p>Pinned memory was refused {count(times, 'time')} by {escape(REFUSERS.get(who, who))}.</p>"
        )
    return "".join(parts)


def _steps(each: Digest) -> str:
    if not each.log.steps:
        return ""
    usage = each.first
    rows = []
    for step in each.steps:
        peaks = usage.steps[step.number] if step.number < len(usage.steps) else None
        length = step.end - step.begin
        rows.append(
            (
                str(step.number),
                span(length),
                span(step.stalled),
                percent(step.stalled / length) if length else "–",
                size(peaks[0]) if peaks else "–",
                size(peaks[1]) if peaks else "–",
            )
        )
    header = ("step", "time", "stalled", "share of time", "peak", "peak without offload")
    if len(rows) > 2 * _MOST_STEPS:
        gap = ("…", *[""] * (len(header) - 1))
        rows = [*rows[:_MOST_STEPS], gap, *rows[-_MOST_STEPS:]]
    later = count(each.later_steps, "later step")
    rest = f"<p class='none'>and {later}, of which only totals were written</p>" if each.later_steps else ""
    return f"<h2>Steps</h2>{_table(header, rows)}{rest}"
