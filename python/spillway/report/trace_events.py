# SPDX-License-Identifier: Apache-2.0
"""The same as a trace that Perfetto and chrome://tracing open (Chrome's trace event format)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spillway.report.copies import BACK
from spillway.report.digests import Digest

__all__ = ["trace_document"]

_STEPS, _FIRST_STREAM = 1, 10


def trace_document(digests: Sequence[Digest]) -> dict[str, Any]:
    """A process of the job is a process of the trace. Times are microseconds of the device's."""
    events: list[dict[str, Any]] = []
    for each in digests:
        events.extend(_process_events(each))
    emulated = any(each.log.emulated for each in digests)
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {"made_by": "spillway report", "device": "emulated GPU" if emulated else "GPU"},
    }


def _process_events(each: Digest) -> list[dict[str, Any]]:
    process = each.log.about["process"]
    log = each.log
    begins = [found.begin for spans in (log.spans, log.operators, log.kernels) for found in spans]
    origin = min([each.clock.at(0), *begins])

    def microseconds(time: int) -> float:
        return max(0, time - origin) / 1000

    def named(what: str, thread: int, name: str) -> dict[str, Any]:
        return {"ph": "M", "name": what, "pid": process, "tid": thread, "args": {"name": name}}

    device = " (emulated GPU)" if each.log.emulated else ""
    events = [named("process_name", 0, f"{each.log.name}{device}"), named("thread_name", _STEPS, "steps")]
    for step in each.steps:
        events.append(
            {
                "ph": "X",
                "name": f"step {step.number}",
                "cat": "step",
                "pid": process,
                "tid": _STEPS,
                "ts": microseconds(step.begin),
                "dur": (step.end - step.begin) / 1000,
                "args": {"stalled_us": step.stalled / 1000},
            }
        )
    lanes: dict[tuple[int, int, str], int] = {}
    for span, why in sorted(each.copies.spans, key=lambda found: (found[0].begin, -found[0].end)):
        what = {"out": "copies out", "in": "copies in"}.get(span.kind, "stalls")
        lane = lanes.get((span.device, span.stream, what))
        if lane is None:
            lane = lanes[span.device, span.stream, what] = _FIRST_STREAM + len(lanes)
            events.append(named("thread_name", lane, f"GPU {span.device} {what}, stream {span.stream:#x}"))
        name = f"wait for {why}" if why else ("to the host" if span.kind == "out" else "to the device")
        detail: dict[str, Any] = {"tag": span.tag, "storage": span.storage}
        if not why:
            detail["bytes"] = span.amount
        events.append(
            {
                "ph": "X",
                "name": name,
                "cat": "stall" if why else "copy",
                "pid": process,
                "tid": lane,
                "ts": microseconds(span.begin),
                "dur": (span.end - span.begin) / 1000,
                "args": detail,
                **({"cname": "terrible" if why == BACK else "bad"} if why else {}),
            }
        )
    for what, calls in (("operators", each.log.operators), ("kernels", each.log.kernels)):
        for call in sorted(calls, key=lambda call: (call.begin, -call.end)):
            lane = lanes.get((call.device, call.stream, what))
            if lane is None:
                lane = lanes[call.device, call.stream, what] = _FIRST_STREAM + len(lanes)
                events.append(
                    named("thread_name", lane, f"GPU {call.device} {what}, stream {call.stream:#x}")
                )
            events.append(
                {
                    "ph": "X",
                    "name": call.name,
                    "cat": what.removesuffix("s"),
                    "pid": process,
                    "tid": lane,
                    "ts": microseconds(call.begin),
                    "dur": (call.end - call.begin) / 1000,
                    "args": {"tag": call.tag},
                }
            )
    for index, usage in each.usage.items():
        names = sorted({name for sample in usage.samples for name in sample[3]})
        for time, _device, offloaded, families in usage.samples:
            at = {"ph": "C", "pid": process, "tid": 0, "ts": microseconds(each.clock.at(time))}
            events.append(
                {
                    **at,
                    "name": f"GPU {index} device bytes",
                    "args": {name: families.get(name, 0) for name in names},
                }
            )
            events.append({**at, "name": f"GPU {index} bytes offloaded", "args": {"offloaded": offloaded}})
    return events
