# SPDX-License-Identifier: Apache-2.0
"""From a process's accounting to the figures of its page. Times are milliseconds of the virtual clock."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from spillway.dry_run.emulator import KINDS, Block, Ended

__all__ = ["Moment", "measured_steps", "process_figures", "settled_steps", "steps_of"]

_MOST_HOLDERS = 10
_KERNELS = ("memory_bound", "products", "attention", "attention_backward")


@dataclass(frozen=True)
class Moment:
    """Totals up to some point of the program, by device; copies of all devices."""

    end_ms: list[float]
    busy_ms: list[list[float]]
    to_host: int
    to_device: int
    #: By tag with a budget: how often its recordings have changed, and the bytes that the last step offloaded
    #: and recomputed. Equal for steps that follow one plan; empty without a budget.
    plans: tuple[Any, ...] = ()
    #: Whether the job kept in the last step what it could have offloaded, since that does not lower its peak.
    keeps: bool = False


def process_figures(
    accounting: Any, knows_holders: bool, moments: Sequence[Moment], end: Moment
) -> dict[str, Any]:
    """`moments`: the beginning, and the end of each step."""
    first, last, steps = _measured(moments, end)
    return {
        "steps": steps_of(moments),
        "copied_per_step": {
            "to_host_bytes": (last.to_host - first.to_host) // steps,
            "to_device_bytes": (last.to_device - first.to_device) // steps,
        },
        "devices": [
            {
                "index": index,
                "shares": _shares(index, first, last),
                "out_of_memory": _ended(accounting.out_of_memory(index)),
                **(_held(accounting.at_peak(index)) if knows_holders else {}),
            }
            for index in range(len(end.end_ms))
        ],
    }


def steps_of(moments: Sequence[Moment]) -> dict[str, Any]:
    """``median_ms`` is of the ``measured`` steps (measured_steps), None where there are none."""
    ends = [max(moment.end_ms) for moment in moments]
    took = [later - earlier for earlier, later in itertools.pairwise(ends)]
    measured = measured_steps(moments)
    return {
        "count": len(took),
        "measured": len(measured),
        "first_ms": took[0] if took else None,
        "median_ms": statistics.median(took[step] for step in measured) if measured else None,
    }


def measured_steps(moments: Sequence[Moment]) -> range:
    """The steps, counted from 0, whose time is the program's. Not the first, which makes the optimizer's
    state, unless it is the only one. With a budget settled_steps(); empty where there are none. Where a job
    has found that offloading does not lower its peak, the last two or more in a row that offloaded, or that
    did not."""
    count = len(moments) - 1
    if count < 1:
        return range(0)
    if any(moment.plans for moment in moments[1:]):
        return settled_steps(moments)
    later = range(min(1, count - 1), count)
    kept = [(step in later, moments[step + 1].keeps) for step in range(count)]
    return _last_alike(kept) or later


def settled_steps(moments: Sequence[Moment]) -> range:
    """The last two or more steps in a row that follow one plan of a budget. Those before are kept or
    recorded. Without the first step. Empty where there are no such steps."""
    return _but_first(_last_alike([moment.plans for moment in moments[1:]]))


def _but_first(steps: range) -> range:
    return range(max(steps.start, 1), steps.stop) if len(steps) > 1 else steps


def _last_alike(steps: Sequence[Any]) -> range:
    """The last two or more in a row that are equal; empty without."""
    last = len(steps)
    while last > 0:
        first = last - 1
        while first > 0 and steps[first - 1] == steps[last - 1]:
            first -= 1
        if last - first > 1:
            return range(first, last)
        last = first
    return range(0)


def _measured(moments: Sequence[Moment], end: Moment) -> tuple[Moment, Moment, int]:
    """From where to where figures of steps are taken, and how many steps that is: without any, all of the
    program is one."""
    steps = measured_steps(moments)
    if steps:
        return moments[steps.start], moments[steps.stop], len(steps)
    if len(moments) > 2:
        return moments[1], moments[-1], len(moments) - 2
    return moments[0], end, 1


def _shares(index: int, first: Moment, last: Moment) -> dict[str, float]:
    """Of the time from the first to the last: what the device's kernels and its copy engines were busy, and
    when no kernel ran."""
    took = max(last.end_ms) - max(first.end_ms)
    if took <= 0:
        return {}
    before, after = first.busy_ms[index], last.busy_ms[index]
    busy = {kind: after[index] - before[index] for index, kind in enumerate(KINDS)}
    kernels = sum(busy[kind] for kind in _KERNELS)
    return {
        "products": busy["products"] / took,
        "attention": (busy["attention"] + busy["attention_backward"]) / took,
        "memory_bound": busy["memory_bound"] / took,
        "idle": max(0.0, 1 - kernels / took),
        "copies_to_host": busy["copies_to_host"] / took,
        "copies_to_device": busy["copies_to_device"] / took,
        "collectives": busy["collectives"] / took,
    }


def _ended(ended: Ended | None) -> dict[str, Any] | None:
    if ended is None:
        return None
    return {
        "times": ended.times,
        "requested_bytes": ended.requested.bytes,
        "allocated_bytes": ended.allocated,
        "operator": ended.requested.operator,
        "lines": ended.requested.lines,
    }


def _held(blocks: Iterable[Block]) -> dict[str, Any]:
    roles: dict[str, int] = {}
    holders: dict[tuple[str, str, str], list[int]] = {}
    for block in blocks:
        roles[block.role] = roles.get(block.role, 0) + block.bytes
        holders.setdefault((block.role, block.operator, block.lines), []).append(block.bytes)
    largest = sorted(holders.items(), key=lambda item: (-sum(item[1]), item[0]))
    return {
        "allocated_at_peak_bytes": dict(sorted(roles.items(), key=lambda item: (-item[1], item[0]))),
        "largest_at_peak": [
            {
                "bytes": sum(sizes),
                "blocks": len(sizes),
                "largest_block_bytes": max(sizes),
                "role": role,
                "operator": operator,
                "lines": lines,
            }
            for (role, operator, lines), sizes in largest[:_MOST_HOLDERS]
        ],
    }
