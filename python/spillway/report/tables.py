# SPDX-License-Identifier: Apache-2.0
"""The page's tables, each with its heading. An empty table is replaced by a note or left out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from spillway.report import words
from spillway.report.digests import REASONS, REFUSERS, Digest
from spillway.report.operators import by_name, by_tag
from spillway.report.sizes import count, percent, rate, size, span

__all__ = ["costs", "operators", "sites", "skipped", "steps", "table", "tags"]

_MOST_TAGS = 40
_MOST_SITES = 15
_MOST_STEPS = 12  # at either end


def table(header: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> str:
    """The first `left` columns are words, the others numbers."""
    kinds = ['class="left"' if index < left else "" for index in range(len(header))]
    head = "".join(f"<th {kind}>{escape(name)}</th>" for kind, name in zip(kinds, header, strict=True))
    body = "".join(
        "<tr>"
        + "".join(f"<td {kind}>{escape(cell)}</td>" for kind, cell in zip(kinds, row, strict=True))
        + "</tr>"
        for row in rows
    )
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def costs(each: Digest) -> str:
    header = (
        "region",
        "offloadable",
        "offloaded",
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
                size(sums["offloadable"]) if sums else "–",
                size(sums["offloaded"]) if sums else "–",
                size(costs.out_bytes) if costs else "–",
                size(costs.in_bytes) if costs else "–",
                rate(costs.out_bytes, costs.out_time) if costs else "–",
                rate(costs.in_bytes, costs.in_time) if costs else "–",
                str(costs.stalls) if costs else "0",
                span(costs.stalled) if costs else span(0),
            )
        )
    if not rows:
        return "<h2>Offloaded bytes by region</h2><p class='none'>Nothing was offloaded.</p>"
    return f"<h2>Offloaded bytes by region</h2><p>{words.costs_of(each)}</p>{table(header, rows)}"


def sites(each: Digest) -> str:
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
    return f"<h2>The largest offloaded storages</h2>{table(header, rows, 5)}{rest}"


def operators(each: Digest) -> str:
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
        parts.append(table((what, "calls", "time", "of all", "mean", "longest"), rows))
        if len(times) > len(rows):
            parts.append(f"<p class='none'>and {len(times) - len(rows)} with less</p>")
    return f"<h2>What the computation did</h2>{''.join(parts)}" if parts else ""


def tags(each: Digest) -> str:
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
        parts.append(f"<h2>Device memory by tag{name}</h2>{table(header, rows)}{rest}")
    return "".join(parts)


def skipped(each: Digest) -> str:
    parts = ["<h2>What stayed on the device, and why</h2>"]
    offloadable, offloaded = (
        sum(sums[what] for sums in each.regions.values()) for what in ("offloadable", "offloaded")
    )
    if offloadable > offloaded:
        parts.append(f"<p>{size(offloaded)} of {size(offloadable)} were offloaded. Resident storages:</p>")
    if each.skipped:
        rows = [
            (REASONS.get(reason, reason), reason, str(kept["storages"]), size(kept["bytes"]))
            for reason, kept in sorted(each.skipped.items(), key=lambda item: -item[1]["bytes"])
        ]
        parts.append(table(("reason", "counted as", "storages", "bytes"), rows, 2))
    else:
        parts.append("<p class='none'>Nothing that was saved for a backward pass stayed.</p>")
    for who, times in sorted(each.refused.items()):
        parts.append(
            f"<p>Pinned memory was refused {count(times, 'time')} by {escape(REFUSERS.get(who, who))}.</p>"
        )
    return "".join(parts)


def steps(each: Digest) -> str:
    if not each.log.steps:
        return ""
    usage = each.first
    rows: list[tuple[str, ...]] = []
    for step in each.steps:
        peaks = usage.steps[step.number] if step.number < len(usage.steps) else None
        length = step.end - step.begin
        rows.append(
            (
                str(step.number),
                span(length) if length else "–",
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
    return f"<h2>Steps</h2>{table(header, rows)}{rest}"
