# SPDX-License-Identifier: Apache-2.0
"""Charts as SVG, drawn here so that a page needs nothing else. Colors are the page's, by class."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

from spillway.report.digests import Digest, Step
from spillway.report.memory import Usage
from spillway.report.sizes import size, span

__all__ = ["MOST_COLORS", "memory_chart", "step_chart"]

WIDTH, LEFT, RIGHT, TOP = 960, 76, 16, 14
MOST_COLORS = 8


def families_of(usage: Usage) -> list[str]:
    """Those with the largest peaks first; what has no color of its own is drawn as "others"."""
    peaks: dict[str, int] = {}
    for _, _, _, families in usage.samples:
        for name, count in families.items():
            peaks[name] = max(peaks.get(name, 0), count)
    return sorted(peaks, key=lambda name: (-peaks[name], name))[: MOST_COLORS - 1]


def memory_chart(each: Digest, usage: Usage) -> str:
    """Device bytes by role, stacked; the line above them adds the offloaded bytes."""
    samples = [(each.clock.at(sample[0]), *sample[1:]) for sample in usage.samples]
    if len(samples) < 2:
        return ""
    drawn = families_of(usage)
    begin, end = samples[0][0], max(samples[-1][0], samples[0][0] + 1)
    top = max(sample[1] + sample[2] for sample in samples) * 1.06
    height, bottom = 300, 300 - 28

    def x(time: int) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (time - begin) / (end - begin)

    def y(count: float) -> float:
        return bottom - (bottom - TOP) * count / top

    parts = [_grid(begin, end, top, bottom, y)]
    for each_step in each.steps:
        if begin < each_step.end < end:
            at = x(each_step.end)
            parts.append(
                f'<line class="stepline" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{bottom}">'
                f"<title>end of step {each_step.number}</title></line>"
            )
    below = [0] * len(samples)
    for index, name in enumerate([*drawn, "others"]):
        if name == "others":
            heights = [sum(c for n, c in s[3].items() if n not in drawn) for s in samples]
        else:
            heights = [sample[3].get(name, 0) for sample in samples]
        if not any(heights):
            continue
        above = [low + high for low, high in zip(below, heights, strict=True)]
        outline = _stairs(samples, above, x, y) + _stairs(samples, below, x, y)[::-1]
        points = " ".join(f"{a:.1f},{b:.1f}" for a, b in outline)
        parts.append(
            f'<polygon class="fill{index}" points="{points}"><title>{escape(name)}</title></polygon>'
        )
        below = above
    without = _stairs(samples, [sample[1] + sample[2] for sample in samples], x, y)
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in without)
    parts.append(
        f'<polyline class="without" points="{points}"><title>with offloaded bytes</title></polyline>'
    )
    for moment, kind, count in (
        (usage.peak, "peak", usage.peak.device),
        (usage.peak_without, "peakwithout", usage.peak_without.without),
    ):
        at, up = x(each.clock.at(moment.time)), y(count)
        label = (
            "without offload"
            if kind != "peak"
            else "peak of the detailed steps"
            if usage.later_peak
            else "peak"
        )
        title = f"<title>{label}: {size(count)}</title>"
        parts.append(f'<circle class="{kind}" cx="{at:.1f}" cy="{up:.1f}" r="4">{title}</circle>')
    return _svg("memory", height, parts, f"Device memory over time, GPU {usage.index}")


def legend(usage: Usage) -> list[tuple[str, str]]:
    """Class and name of each color of `memory_chart`."""
    drawn = families_of(usage)
    names = {name for sample in usage.samples for name in sample[3]}
    rows = [(f"fill{index}", name) for index, name in enumerate(drawn)]
    if names - set(drawn):
        rows.append((f"fill{len(drawn)}", "others"))
    return rows


def step_chart(each: Digest, step: Step) -> str:
    """One step: copies each way and what the computation waited for, below each other."""
    begin, end = step.begin, max(step.end, step.begin + 1)
    height = 40 + 3 * 44

    def x(time: int) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (min(max(time, begin), end) - begin) / (end - begin)

    lanes = (("compute", 0), ("copies out", 1), ("copies in", 2))
    parts = []
    for name, lane in lanes:
        at = TOP + lane * 44
        parts.append(f'<text class="axis" x="{LEFT - 8}" y="{at + 20}" text-anchor="end">{name}</text>')
        back = "compute" if lane == 0 else "lane"
        parts.append(f'<rect class="{back}" x="{LEFT}" y="{at}" width="{WIDTH - LEFT - RIGHT}" height="32"/>')
    for call in each.log.operators:
        left, right = x(call.begin), x(call.end)
        if call.end > begin and call.begin < end and right - left >= 0.2:
            text = f"{call.name}: {span(call.end - call.begin)}{f', tag {call.tag}' if call.tag else ''}"
            parts.append(
                f'<rect class="operator" x="{left:.2f}" y="{TOP}" width="{right - left:.2f}" height="32">'
                f"<title>{escape(text)}</title></rect>"
            )
    for found, why in each.copies.spans:
        if found.end <= begin or found.begin >= end:
            continue
        lane = {"wait": 0, "out": 1, "in": 2}[found.kind]
        left = x(found.begin)
        width = max(x(found.end) - left, 0.6)
        taken = span(found.end - found.begin)
        text = f"stall of {taken}: waits for {why}" if why else f"{size(found.amount)} in {taken}"
        if found.tag:
            text += f", tag {found.tag}"
        kind = "stall" if why else found.kind
        parts.append(
            f'<rect class="{kind}" x="{left:.2f}" y="{TOP + lane * 44}" width="{width:.2f}" height="32">'
            f"<title>{escape(text)}</title></rect>"
        )
    for fifth in range(6):
        time = begin + (end - begin) * fifth // 5
        parts.append(_time_label(x(time), height - 8, time - begin))
    return _svg("timeline", height, parts, f"Copies and stalls of step {step.number}")


def _stairs(
    samples: Sequence[tuple[int, int, int, dict[str, int]]],
    heights: Sequence[float],
    x: Callable[[int], float],
    y: Callable[[float], float],
) -> list[tuple[float, float]]:
    points = []
    for index, sample in enumerate(samples):
        at = x(sample[0])
        if index:
            points.append((at, y(heights[index - 1])))
        points.append((at, y(heights[index])))
    return points


def _grid(begin: int, end: int, top: float, bottom: int, y: Callable[[float], float]) -> str:
    parts = []
    for quarter in range(5):
        count = top * quarter / 4
        at = y(count)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(
            f'<text class="axis" x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{size(count)}</text>'
        )
    for fifth in range(6):
        at = LEFT + (WIDTH - LEFT - RIGHT) * fifth / 5
        time = (end - begin) * fifth // 5
        parts.append(_time_label(at, bottom + 18, time))
    return "".join(parts)


def _time_label(at: float, down: int, time: int) -> str:
    anchor = "end" if at > WIDTH - RIGHT - 1 else "middle"
    return f'<text class="axis" x="{at:.1f}" y="{down}" text-anchor="{anchor}">{span(time)}</text>'


def _svg(name: str, height: int, parts: list[str], title: str) -> str:
    return (
        f'<svg class="chart {name}" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{escape(title)}" preserveAspectRatio="xMidYMid meet">{"".join(parts)}</svg>'
    )
