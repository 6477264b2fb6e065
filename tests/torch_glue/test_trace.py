# SPDX-License-Identifier: Apache-2.0
"""Recordings of a training loop, and the traces that they write."""

import json
import subprocess
import sys

import pytest

LOOP = """
import spillway, torch
spillway.use_allocator()
torch.manual_seed(0)
path = {path!r}
result = {{}}
with spillway.memory.record_trace(path) as recording:
    with spillway.tag("model"):
        model = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(4)]).to("cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
    for _ in range(3):
        with spillway.CPUOffload(0.5, tag="loop"):
            loss = model(torch.randn(64, 256, device="cuda")).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    try:
        with spillway.memory.record_trace():
            pass
    except RuntimeError as error:
        result["twice"] = str(error)
    accounting = spillway._load.glue().memory_by_tag(0)
    result["accounting"] = {{name: tag["requested_bytes"] for name, tag in accounting.items()
                       if tag["requested_bytes"]}}
result["counts"] = recording.counts
result["lifetimes"] = recording.lifetimes
kept = torch.ones(1000, device="cuda")
trace = spillway.memory.read_trace(path)
result["complete"], result["granularity"] = trace.complete, trace.granularity
result["kinds"] = {{kind: sum(event[0] == kind for event in trace.events)
                   for kind in ("allocate", "free", "use", "step")}}
with spillway.memory.record_trace(most=2) as short:
    for _ in range(5):
        torch.ones(1000, device="cuda")
result["short"] = [short.counts, len(short.lifetimes)]
try:
    with spillway.memory.record_trace():
        raise KeyError
except KeyError:
    pass
with spillway.memory.record_trace() as again:
    pass
result["again"] = again.counts["births"]
for name, bad in (("path", dict(path="/nowhere/trace")), ("most", dict(most=-1)), ("empty", dict(path="")),
                  ("number", dict(path=3)), ("text", dict(most="2")), ("folder", dict(path="/"))):
    try:
        spillway.memory.record_trace(**bad)
    except (TypeError, ValueError) as error:
        result[name] = type(error).__name__ + ": " + str(error)
report(result)
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("traces") / "loop.trace"


@pytest.fixture(scope="module")
def loop(path):
    from conftest import run

    return run(LOOP.format(path=str(path)))


def test_births_are_deaths_and_lives(loop):
    counts = loop["counts"]
    assert counts["births"] == counts["deaths"] + counts["live"] == len(loop["lifetimes"])
    assert counts["live"] > 8 and counts["deaths"] > 8
    assert counts["dropped"] == counts["unwritten"] == 0


def test_a_life_is_in_order(loop):
    used = 0
    for life in loop["lifetimes"]:
        assert life["birth"]["event"] <= life["last_use"]["event"]
        assert life["birth"]["time"] <= life["last_use"]["time"]
        used += life["last_use"]["event"] > life["birth"]["event"]
        if life["death"] is not None:
            assert life["last_use"]["event"] < life["death"]["event"]
            assert life["last_use"]["step"] <= life["death"]["step"]
    assert used > 0


def test_an_optimizers_step_ends_a_step(loop):
    assert loop["counts"]["steps"] == 3
    assert {life["birth"]["step"] for life in loop["lifetimes"]} == {0, 1, 2}


def test_allocated_bytes_by_tag_are_the_heaps(loop):
    live = {}
    for life in loop["lifetimes"]:
        if life["death"] is None:
            live[life["tag"]] = live.get(life["tag"], 0) + life["bytes"]
    assert live == loop["accounting"]
    assert live["model"] == 4 * (256 * 256 + 256) * 4


def test_the_file_has_what_the_recording_saw(loop):
    counts = loop["counts"]
    assert loop["complete"] and loop["granularity"] >= 1 << 16
    assert loop["kinds"] == {
        "allocate": counts["births"],
        "free": counts["deaths"],
        "use": counts["uses"],
        "step": counts["steps"],
    }


def test_records_are_bounded_and_counted(loop):
    counts, kept = loop["short"]
    assert kept == 2
    assert counts["births"] == counts["deaths"] == 5
    assert counts["dropped"] == 3


def test_recordings_are_refused_and_end_as_they_should(loop):
    assert loop["twice"] == "a recording is already running. End it first."
    assert loop["again"] == 0
    assert loop["path"].startswith("ValueError: path=/nowhere/trace: ")
    assert loop["most"].startswith("ValueError: most ") and "-1" in loop["most"]
    assert loop["empty"].startswith("ValueError: path ")
    assert loop["number"].startswith("TypeError") and loop["text"].startswith("TypeError: most ")
    assert loop["folder"].startswith("ValueError: path=/: ")


def test_the_command_shows_a_trace(loop, path):
    done = subprocess.run(
        [sys.executable, "-m", "spillway", "trace", "show", str(path)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert shown["allocations"] == loop["counts"]["births"]
    assert shown["steps"] == 3 and shown["complete"]
    assert shown["live_at_end_bytes"] == sum(loop["accounting"].values()) <= shown["allocated_peak_bytes"]
    assert shown["tags"]["model"]["allocated_peak_bytes"] == loop["accounting"]["model"]


def test_the_command_refuses_what_is_no_trace(tmp_path):
    bad = tmp_path / "bad"
    bad.write_text("no trace")
    done = subprocess.run(
        [sys.executable, "-m", "spillway", "trace", "show", str(bad)], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stderr.startswith(f"spillway trace: {bad}: is not a trace of Spillway. Write one with ")
    assert done.stderr.count("\n") == 1


def test_memory_of_pytorchs_allocator_is_not_recorded(program):
    text = program(
        "import spillway, torch\n"
        "try:\n    with spillway.memory.record_trace():\n        pass\n"
        "except RuntimeError as error:\n    report(str(error))"
    )
    assert "spillway.use_allocator()" in text
