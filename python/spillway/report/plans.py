# SPDX-License-Identifier: Apache-2.0
"""The planned cost of a job's budgets, from a file beside its log. Imports no torch."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from spillway._files import read_text, reason_of, replace
from spillway._text import parse_json, printable
from spillway.planning import LIMITS, Explanation, PlanPoint
from spillway.report.log import ReportError, RunLog
from spillway.report.sizes import percent, size

__all__ = ["SUFFIX", "facts", "plans_of", "section", "write_plans"]

SUFFIX = ".plans.json"
_FORMAT = 2
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 960, 260, 76, 16, 14, 28


def write_plans(path: Path, plans: Iterable[Explanation]) -> None:
    """Writes a file that only the user can read; no file without plans. Raises OSError."""
    documents = [plan.as_dict() for plan in plans]
    if not documents:
        return
    replace({path: json.dumps({"spillway_explanations": _FORMAT, "plans": documents})})


def plans_of(log: RunLog) -> list[Explanation]:
    """Empty if the job had no budget or has not ended. Raises ReportError for a damaged file."""
    path = log.path.with_suffix(SUFFIX)
    try:
        found = parse_json(read_text(path))
        if found["spillway_explanations"] != _FORMAT:
            version = printable(repr(found["spillway_explanations"]))[:20]
            raise ReportError(
                f"{path}: has format {version}, but this Spillway reads format {_FORMAT}. Use the version of "
                "Spillway that wrote it, or delete the file."
            )
        return [_explanation(plan) for plan in found["plans"]]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ReportError(
            f"{path}: cannot be read ({reason_of(error)}). Make it readable, or delete it."
        ) from None
    except ReportError:
        raise
    except (LookupError, TypeError, ValueError) as error:
        raise ReportError(
            f"{path}: is damaged ({printable(repr(error))[:200]}). Delete it, or run the job again with "
            "--report."
        ) from None


# By a field's annotation in planning.py.
_TYPES: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (int, float),
    "float | None": (int, float, type(None)),
    "str": (str,),
}


def _explanation(found: dict[str, Any]) -> Explanation:
    """Raises LookupError, TypeError or ValueError for a value that no job writes."""
    plan = Explanation.from_dict(found)
    records: list[Explanation | PlanPoint] = [plan, plan.chosen, *plan.curve]
    for record in records:
        for field in dataclasses.fields(record):
            value = getattr(record, field.name)
            allowed = _TYPES.get(str(field.type))
            if allowed and (not isinstance(value, allowed) or isinstance(value, bool)):
                raise TypeError(f"{field.name} must be {field.type}, not {value!r}")
            if isinstance(value, int | float) and not 0 <= value < 2**63:
                raise ValueError(f"{field.name} must be from 0 to 2^63 - 1, not {value}")
    for point in (plan.chosen, *plan.curve):
        LIMITS[point.limit]
    return plan


def facts(plan: Explanation) -> str:
    """The plan in a sentence or two."""
    chosen = plan.chosen
    took = f"a step took {plan.taken * 1e3:.4g} ms" if plan.taken else "no step with it was timed"
    return (
        f"Within a budget of {size(chosen.budget)}{f' on GPU {plan.device}' if plan.device else ''}, region "
        f"{plan.tag!r}: resident {size(chosen.kept)}, offloaded {size(chosen.offloaded)}, recomputed "
        f"{size(chosen.recomputed)}; {took}; optimality {percent(plan.optimality)}, limited by "
        f"{LIMITS[chosen.limit]}."
    )


def section(log: RunLog) -> str:
    plans = plans_of(log)
    return "".join(
        f"<h2>What a budget costs, region {escape(plan.tag)}, GPU {escape(str(plan.device))}</h2>"
        f"<p>{escape(facts(plan))}</p>"
        f'<div class="wide">{_chart(plan)}</div>'
        '<ul class="key"><li><i class="planned"></i>planned</li>'
        '<li><i class="dash"></i>what no plan can beat</li></ul>'
        f"{_table(plan)}"
        for plan in plans
    )


def _table(plan: Explanation) -> str:
    from spillway.report.tables import table

    header = ("budget", "resident", "offloaded", "recomputed", "step", "relative", "optimality", "limited by")
    rows = [
        (
            size(point.budget) + (" (this run)" if point == plan.chosen else ""),
            size(point.kept),
            size(point.offloaded),
            size(point.recomputed),
            f"{point.seconds * 1e3:.4g} ms",
            f"{point.slowdown:.3f}",
            percent(point.optimality),
            LIMITS[point.limit],
        )
        for point in plan.points
    ]
    return table(header, rows)


def _chart(plan: Explanation) -> str:
    """Budget against predicted time, relative to everything resident."""
    points = plan.points
    begin, end = points[0].budget, max(points[-1].budget, points[0].budget + 1)
    top = max(2 * (max(point.slowdown for point in points) - 1) * 0.55, 0.05)

    def x(budget: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * (budget - begin) / (end - begin)

    def y(slowdown: float) -> float:
        room = _HEIGHT - _BOTTOM - _TOP
        return _HEIGHT - _BOTTOM - room * max(0.0, slowdown - 1) / top

    parts = []
    for each in range(5):
        slowdown = 1 + top * each / 4
        at = y(slowdown)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(
            f'<text class="axis" x="{_LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{slowdown:.2f}×</text>'
        )
        budget = begin + (end - begin) * each / 4
        anchor = "start" if each == 0 else "end" if each == 4 else "middle"
        parts.append(
            f'<text class="axis" x="{x(budget):.1f}" y="{_HEIGHT - 8}" text-anchor="{anchor}">'
            f"{size(int(budget))}</text>"
        )
    parts.append(_line("without", points, x, y, lambda point: point.bound / point.compute))
    parts.append(_line("planned", points, x, y, lambda point: point.slowdown))
    chosen = plan.chosen
    parts.append(
        f'<circle class="peak" cx="{x(chosen.budget):.1f}" cy="{y(chosen.slowdown):.1f}" r="4">'
        f"<title>this run: {size(chosen.budget)}, {chosen.slowdown:.3f} times the time</title></circle>"
    )
    return (
        f'<svg class="chart" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="Budget against time, region {escape(plan.tag)}">{"".join(parts)}</svg>'
    )


def _line(
    kind: str,
    points: Sequence[PlanPoint],
    x: Callable[[float], float],
    y: Callable[[float], float],
    value: Callable[[PlanPoint], float],
) -> str:
    line = " ".join(f"{x(point.budget):.1f},{y(value(point)):.1f}" for point in points if point.compute)
    return f'<polyline class="{kind}" points="{line}"/>'
