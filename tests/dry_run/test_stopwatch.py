# SPDX-License-Identifier: Apache-2.0
"""What a program measures itself in a dry run, by its stopwatch and by PyTorch's profiler: modeled time."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from conftest import DRY, spillway

WIDTH = 4096
PRODUCT = 2 * WIDTH**3 / 1e15  # seconds
READING = 1e-6

STOPWATCH = f"""
from time import perf_counter
import json, os, pickle, threading, time
import torch

x = torch.empty({WIDTH}, {WIDTH}, device="cuda", dtype=torch.bfloat16)
begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
x @ x
torch.cuda.synchronize()
by_name, by_module, at = perf_counter(), time.time(), time.perf_counter_ns()
begin.record()
for _ in range(100):
    x @ x
end.record()
torch.cuda.synchronize()
found = dict(
    perf_counter=perf_counter() - by_name, time=time.time() - by_module,
    perf_counter_ns=(time.perf_counter_ns() - at) / 1e9, events=begin.elapsed_time(end) / 1e3,
)

at = time.time()
time.sleep(0.3)
found["sleep"] = time.time() - at
at = time.perf_counter()
while time.perf_counter() - at < 0.01:
    pass

def beside_the_real_one():
    "The time inside, the reading of the stopwatch, and the time around it by a real clock."
    around, at, really = time.monotonic(), time.perf_counter(), time.monotonic()
    while time.monotonic() - really < 0.1:
        pass
    inside = time.monotonic() - really
    reading = perf_counter() - at
    return inside, reading, time.monotonic() - around

def in_a_thread():
    found["thread"] = beside_the_real_one()

thread = threading.Thread(target=in_a_thread)
thread.start()
thread.join()

at, really = time.perf_counter(), time.monotonic()
while time.monotonic() - really < 0.3:
    pass
leaf = torch.ones(1, device="cuda", requires_grad=True)
leaf.register_hook(lambda _: found.update(autograd=time.perf_counter() - at))
leaf.sum().backward()
assert pickle.loads(pickle.dumps([time.time, time.sleep])) == [time.time, time.sleep]

reader, writer = os.pipe()
if os.fork() == 0:
    os.write(writer, json.dumps(beside_the_real_one()).encode())
    os._exit(0)
os.wait()
found["child"] = json.loads(os.read(reader, 100))
print(json.dumps(found))
"""

PROFILER = f"""
import json, torch
from torch.profiler import ProfilerActivity, profile

x = torch.empty({WIDTH}, {WIDTH}, device="cuda", dtype=torch.bfloat16)
with profile(activities=[ACTIVITIES]) as profiled:
    for _ in range(3):
        x @ x
(mm,) = (event for event in profiled.key_averages() if event.key == "aten::mm")
print(json.dumps([mm.count, mm.device_time_total / 1e6, mm.self_device_time_total / 1e6]))
"""


def printed(program: str) -> tuple[Any, str]:
    result = spillway(*DRY, "--", sys.executable, "-c", program)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout), result.stderr


def test_a_stopwatch_reads_the_modeled_time() -> None:
    found, _ = printed(STOPWATCH)
    assert found["events"] >= 100 * PRODUCT
    for name in ("perf_counter", "time", "perf_counter_ns"):
        assert found["events"] <= found[name] <= found["events"] + 20 * READING, name
    assert found["sleep"] == pytest.approx(0.3, abs=3 * READING)
    assert 0 < found["autograd"] < 0.1
    for place in ("thread", "child"):
        inside, reading, around = found[place]
        assert inside <= reading <= around, place


def test_it_shows_the_same_in_each_run() -> None:
    modeled = ("perf_counter", "events")
    first, second = printed(STOPWATCH)[0], printed(STOPWATCH)[0]
    assert [round(first[name], 9) for name in modeled] == [round(second[name], 9) for name in modeled]


@pytest.mark.parametrize(
    "activities", ["ProfilerActivity.CPU, ProfilerActivity.CUDA", "ProfilerActivity.CUDA"]
)
def test_the_profiler_has_operators_modeled_times(activities: str) -> None:
    (count, total, own), errors = printed(PROFILER.replace("ACTIVITIES", activities))
    assert count == 3
    assert 3 * PRODUCT <= own <= total <= 3 * (PRODUCT + 20 * READING)
    assert "CUPTI" not in errors
