# SPDX-License-Identifier: Apache-2.0
"""trace.json against the rules of the trace event format."""

from __future__ import annotations

import json
from collections import defaultdict

import synthetic
from spillway.report.digests import digest
from spillway.report.log import read_log
from spillway.report.trace_events import trace_document

NEEDED = {
    "X": {"name", "ph", "ts", "dur", "pid", "tid"},
    "C": {"name", "ph", "ts", "pid", "args"},
    "M": {"name", "ph", "pid", "args"},
}


def check_trace(document: dict) -> None:
    """What Perfetto and chrome://tracing ask of a trace in its object form."""
    assert isinstance(document["traceEvents"], list)
    assert document["displayTimeUnit"] in ("ms", "ns")
    lanes = defaultdict(list)
    for event in document["traceEvents"]:
        assert event["ph"] in NEEDED, event
        assert NEEDED[event["ph"]] <= event.keys(), event
        assert isinstance(event["pid"], int) and isinstance(event.get("tid", 0), int)
        if event["ph"] == "M":
            assert event["name"] in ("process_name", "thread_name") and isinstance(event["args"]["name"], str)
            continue
        assert isinstance(event["ts"], int | float) and event["ts"] >= 0
        if event["ph"] == "C":
            assert all(isinstance(value, int | float) for value in event["args"].values()) and event["args"]
        else:
            assert event["dur"] >= 0
            lanes[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for spans in lanes.values():
        # On one thread they may lie in each other or apart, and not across.
        open_until = []
        for begin, end in sorted(spans, key=lambda span: (span[0], -span[1])):
            while open_until and open_until[-1] <= begin + 1e-6:
                open_until.pop()
            assert not open_until or end <= open_until[-1] + 1e-6
            open_until.append(end)


def events_of(tmp_path) -> dict:
    path = synthetic.write(tmp_path / "7-1.spillway", synthetic.OPERATORS_OF_A_RUN)
    return trace_document([digest(read_log(path))])


def test_it_follows_the_format_s_rules(tmp_path):
    check_trace(json.loads(json.dumps(events_of(tmp_path))))


def test_copies_stalls_and_steps_are_in_it(tmp_path):
    document = events_of(tmp_path)
    spans = {event["name"]: event for event in document["traceEvents"] if event["ph"] == "X"}
    assert spans["to the host"]["dur"] == 2.0 and spans["to the host"]["args"]["bytes"] == 4000
    assert spans["wait for a fetch"]["dur"] == 1.0
    assert spans["step 0"]["args"]["stalled_us"] == 1.0
    lanes = [spans[name]["tid"] for name in ("to the host", "to the device", "wait for a fetch", "step 0")]
    assert len(set(lanes)) == 4
    offloaded = [
        event["args"]["offloaded"]
        for event in document["traceEvents"]
        if event["name"] == "GPU 0 bytes offloaded"
    ]
    assert max(offloaded) == 4000
    calls = [event for event in document["traceEvents"] if event.get("cat") == "operator"]
    assert [(call["name"], call["dur"], call["args"]["tag"]) for call in calls] == [
        ("aten::mul", 1.5, "activation/layers.0"),
        ("aten::mul", 0.5, "job"),
        ("MulBackward0", 3.0, "job"),
    ]
    kernels = [event for event in document["traceEvents"] if event.get("cat") == "kernel"]
    assert [(call["name"], call["dur"]) for call in kernels] == [("elementwise_kernel", 2.0)]
    assert kernels[0]["tid"] not in (calls[0]["tid"], *lanes)
    assert len({call["tid"] for call in calls}) == 1 and calls[0]["tid"] not in lanes
    assert document["otherData"]["device"] == "emulated GPU"
