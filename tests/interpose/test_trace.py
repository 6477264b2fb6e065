# SPDX-License-Identifier: Apache-2.0
"""Traces: what is in them is what the program did, and a file that is none is one clear error."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from children import CLIENTS, DRIVER, EMULATOR, LIBRARIES, PRELUDE, SHIM, environment, python, run
from spillway.preload_trace import PreloadTrace, is_preload_trace, read_preload_trace, summary

EMULATED = {"SPILLWAY_EMULATE": "1"}
PACKAGE = LIBRARIES.parent.parent

WORK = """
import threading
def allocate(size):
    at = c_void_p()
    assert process.cudaMalloc(byref(at), c_size_t(size)) == 0
    return at
first = allocate(1 << 20)
stream = c_void_p()
process.cudaStreamCreate(byref(stream))
host = c_void_p()
process.cudaHostAlloc(byref(host), c_size_t(4096), 0)
process.cudaMemcpyAsync(first, host, c_size_t(4096), 1, stream)
process.cudaMemcpyAsync(host, first, c_size_t(2048), 2, stream)
process.cudaStreamSynchronize(stream)
print(stream.value)
other = threading.Thread(target=lambda: process.cudaFree(allocate(512)))
other.start(); other.join()
process.cudaMalloc(byref(c_void_p()), c_size_t(1 << 60))
"""


def recorded(body: str, path: Path, **settings: str) -> PreloadTrace:
    python(body, SHIM, EMULATOR, SPILLWAY_PRELOAD_TRACE=path, **EMULATED, **settings)
    return read_preload_trace(path)


def test_calls_are_reported_with_kind_size_stream_thread_and_result(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    stream = int(python(WORK, SHIM, EMULATOR, SPILLWAY_PRELOAD_TRACE=path, **EMULATED))
    trace = read_preload_trace(path)
    reported = [(call.function, call.kind, call.bytes, call.result) for call in trace.calls]
    assert reported == [
        ("cudaMalloc", "allocate", 1 << 20, 0),
        ("cudaStreamCreate", "stream_create", 0, 0),
        ("cudaHostAlloc", "host_allocate", 4096, 0),
        ("cudaMemcpyAsync", "copy_in", 4096, 0),
        ("cudaMemcpyAsync", "copy_out", 2048, 0),
        ("cudaStreamSynchronize", "synchronize", 0, 0),
        ("cudaMalloc", "allocate", 512, 0),
        ("cudaFree", "free", 0, 0),
        ("cudaMalloc", "allocate", 1 << 60, 2),
    ]
    assert {call.stream for call in trace.calls} == {0, stream}
    assert trace.calls[6].thread == trace.calls[7].thread != trace.calls[0].thread
    assert trace.calls[6].address == trace.calls[7].address != 0
    assert trace.complete and trace.lost == 0


def test_the_summary_adds_up(tmp_path: Path) -> None:
    said = summary(recorded(WORK, tmp_path / "trace"))
    assert said["device"] == {"allocations": 2, "peak_bytes": (1 << 20) + 512, "at_end_bytes": 1 << 20}
    assert said["host"] == {"allocations": 1, "peak_bytes": 4096, "at_end_bytes": 4096}
    assert (said["copied_in_bytes"], said["copied_out_bytes"], said["threads"]) == (4096, 2048, 2)
    assert said["functions"]["cudaMalloc"] == {"calls": 3, "bytes": (1 << 60) + (1 << 20) + 512, "errors": 1}
    assert sorted(map(int, said["allocations_up_to_bytes"])) == [512, 1 << 20]


def test_a_handle_that_is_held_twice_is_released_with_its_last_release(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    body = f"""
driver = ctypes.CDLL({str(DRIVER)!r})
handle = c_uint64(77)  # what the driver gives is what is there
driver.cuMemCreate(byref(handle), c_size_t(4096), None, c_uint64(0))
driver.cuMemRetainAllocationHandle(byref(handle), None)
driver.cuMemRelease(handle)
"""
    python(body, SHIM, SPILLWAY_PRELOAD_TRACE=path)
    assert summary(read_preload_trace(path))["mapped"]["at_end_bytes"] == 4096
    python(body + "driver.cuMemRelease(handle)", SHIM, SPILLWAY_PRELOAD_TRACE=path)
    assert summary(read_preload_trace(path))["mapped"]["at_end_bytes"] == 0


def test_what_was_not_freed_is_there(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    python(
        f"""
driver = ctypes.CDLL({str(DRIVER)!r})
at = c_uint64(4096)
driver.cuMemAlloc_v2(byref(at), c_size_t(512))
driver.stub_answer(1)
driver.cuMemFree_v2(at)
""",
        SHIM,
        SPILLWAY_PRELOAD_TRACE=path,
    )
    assert summary(read_preload_trace(path))["device"]["at_end_bytes"] == 512


def test_a_stream_that_is_busy_is_no_error(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    python(
        f"""
driver = ctypes.CDLL({str(DRIVER)!r})
for answer in 600, 1:
    driver.stub_answer(answer)
    driver.cuStreamQuery(c_void_p(5))
""",
        SHIM,
        SPILLWAY_PRELOAD_TRACE=path,
    )
    trace = read_preload_trace(path)
    assert [(call.kind, call.stream, call.result) for call in trace.calls] == [
        ("query", 5, 600),
        ("query", 5, 1),
    ]
    assert summary(trace)["functions"]["cuStreamQuery"] == {"calls": 2, "bytes": 0, "errors": 1}


def test_more_calls_than_a_ring_holds_are_all_there(tmp_path: Path) -> None:
    rounds = 40_000
    body = f"for _ in range({rounds}): process.cudaMemset(None, 0, c_size_t(0))"
    trace = recorded(body, tmp_path / "trace")
    assert len(trace.calls) == rounds and trace.complete
    assert all(a.nanoseconds <= b.nanoseconds for a, b in zip(trace.calls, trace.calls[1:], strict=False))


def test_calls_to_the_driver_are_there_too(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    body = f"""
driver = ctypes.CDLL({str(DRIVER)!r})
at = c_uint64(4096)
driver.cuMemAlloc_v2(byref(at), c_size_t(512))
driver.cuLaunchKernel(c_void_p(7), 1, 1, 1, 1, 1, 1, 0, c_void_p(5), None, None)
driver.cuMemsetD32_v2(at, 7, c_size_t(16))
driver.cuMemcpyPeer(at, None, c_uint64(8192), None, c_size_t(96))
box = (c_size_t * 16)()  # CUDA_MEMCPY2D ends with its width and height
box[14], box[15] = 24, 5
driver.cuMemcpy2D_v2(box)
driver.cuMemcpy2DUnaligned_v2(box)
driver.cuMemFree_v2(at)
"""
    python(body, SHIM, SPILLWAY_PRELOAD_TRACE=path)
    reported = [
        (call.function, call.address, call.bytes, call.stream) for call in read_preload_trace(path).calls
    ]
    assert reported == [
        ("cuMemAlloc_v2", 4096, 512, 0),
        ("cuLaunchKernel", 7, 0, 5),
        ("cuMemsetD32_v2", 4096, 64, 0),
        ("cuMemcpyPeer", 4096, 96, 0),
        ("cuMemcpy2D_v2", 0, 120, 0),
        ("cuMemcpy2DUnaligned_v2", 0, 120, 0),
        ("cuMemFree_v2", 4096, 0, 0),
    ]


def test_a_forked_child_does_not_hold_its_parents_file(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    body = """
process.cudaMalloc(byref(c_void_p()), c_size_t(512))
for _ in range(20_000): process.cudaMemset(None, 0, c_size_t(0))  # the file is there
import signal
child = os.fork()
if child == 0:
    os.close(1), os.close(2)
    signal.alarm(60)
    signal.pause()  # until it is killed
print(child)
"""
    child = int(python(body, SHIM, EMULATOR, SPILLWAY_PRELOAD_TRACE=path, **EMULATED))
    try:
        trace = recorded("process.cudaMalloc(byref(c_void_p()), c_size_t(512))", path)
    finally:
        os.kill(child, 9)
    assert len(trace.calls) == 1 and list(tmp_path.iterdir()) == [path]


def test_a_description_of_a_copy_has_its_direction(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    python(
        f"""
driver = ctypes.CDLL({str(DRIVER)!r})
host, device, array, unified = 1, 2, 3, 4
for source, target in (host, device), (device, host), (device, device), (unified, device), (host, host):
    plane, box = (c_size_t * 16)(), (c_size_t * 25)()  # CUDA_MEMCPY2D and CUDA_MEMCPY3D
    plane[2], plane[9], box[4], box[15] = source, target, source, target
    driver.cuMemcpy2DAsync_v2(plane, c_void_p(5))
    driver.cuMemcpy3D_v2(box)
driver.stub_answer(1)
driver.cuMemcpy2DAsync_v2(None, None)  # refused: its description is not read
""",
        SHIM,
        SPILLWAY_PRELOAD_TRACE=path,
    )
    kinds = [call.kind for call in read_preload_trace(path).calls]
    assert kinds[::2] == ["copy_in", "copy_out", "copy", "copy", "copy", "copy"]
    assert kinds[1::2] == kinds[:-1:2]


def test_a_trace_can_begin_and_end_inside_a_program(tmp_path: Path) -> None:
    python(
        f"""
begin, end = process.spillway_preload_trace_begin, process.spillway_preload_trace_end
allocate = lambda: process.cudaMalloc(byref(c_void_p()), c_size_t(512))
allocate()
print(end() != 0, begin(b""), begin({str(tmp_path / "trace-%p")!r}.encode()), begin(b"other") != 0)
allocate()
assert end() == 0
allocate()
assert begin(b"/nowhere/trace") == 0
allocate()
assert end() != 0
os.rename(f"{tmp_path}/trace-{{os.getpid()}}", {str(tmp_path / "trace")!r})
""",
        SHIM,
        EMULATOR,
        **EMULATED,
    )
    assert len(read_preload_trace(tmp_path / "trace").calls) == 1


def test_a_trace_that_ends_while_threads_call_has_all_calls_before_its_end(tmp_path: Path) -> None:
    traces = 30
    done = run([str(CLIENTS / "preload_end_trace"), str(tmp_path), str(traces)], environment(SHIM))
    before = [int(line) for line in done.stdout.split()]
    assert len(before) == traces and max(before) > 16384  # rings were full meanwhile
    for number, calls in enumerate(before):
        if not calls:
            continue
        trace = read_preload_trace(tmp_path / str(number))
        assert trace.complete and trace.lost == 0
        assert len(trace.calls) >= calls, (number, len(trace.calls), calls)


def test_processes_beside_each_other_do_not_write_into_one_file(tmp_path: Path) -> None:
    body = f"""
process.cudaMalloc(byref(c_void_p()), c_size_t(512))
if len(sys.argv) == 1:
    for _ in range(20_000): process.cudaMemset(None, 0, c_size_t(0))  # the file is being written
    import subprocess
    subprocess.run([sys.executable, "-c", {python_child()!r}], check=True)
"""
    recorded(body, tmp_path / "trace")
    files = sorted(tmp_path.iterdir())
    assert [len(read_preload_trace(each).calls) for each in files] == [20_001, 1]


def python_child() -> str:
    return (
        "import ctypes; ctypes.CDLL(None).cudaMalloc(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(512))"
    )


def test_a_process_without_cuda_leaves_no_file(tmp_path: Path) -> None:
    python("pass", SHIM, SPILLWAY_PRELOAD_TRACE=tmp_path / "trace")
    assert list(tmp_path.iterdir()) == []


def test_a_program_that_was_killed_leaves_what_it_had_written(tmp_path: Path) -> None:
    body = "for _ in range(20_000): process.cudaMemset(None, 0, c_size_t(0))\nos.kill(os.getpid(), 9)"
    path = tmp_path / "trace"
    env = environment(SHIM, EMULATOR, SPILLWAY_PRELOAD_TRACE=path, **EMULATED)
    assert subprocess.run([sys.executable, "-c", PRELUDE + body], env=env, check=False).returncode == -9
    trace = read_preload_trace(path)
    assert not trace.complete and len(trace.calls) == 16384
    cut = tmp_path / "cut"
    cut.write_bytes(path.read_bytes()[:-20])
    assert len(read_preload_trace(cut).calls) == 16383


def test_a_program_that_closes_every_file_gets_none_of_ours_into_its_own(tmp_path: Path) -> None:
    path, own = tmp_path / "trace", tmp_path / "own"
    body = f"""
fill = lambda: [process.cudaMemset(None, 0, c_size_t(0)) for _ in range(20_000)]
fill()
os.closerange(3, 64)  # as daemons do
files = [open({str(own)!r}, "ab", buffering=0) for _ in range(8)]
fill()
for file in files: file.write(b"mine ")
"""
    env = environment(SHIM, EMULATOR, SPILLWAY_PRELOAD_TRACE=path, **EMULATED)
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + body], env=env, capture_output=True, text=True, check=False
    )
    assert own.read_bytes() == b"mine " * 8
    assert done.returncode == 0
    assert done.stderr == f"spillway: SPILLWAY_PRELOAD_TRACE: {path}: Bad file descriptor\n"
    trace = read_preload_trace(path)
    assert not trace.complete and len(trace.calls) == 16384


def test_what_is_no_trace_is_one_clear_error(tmp_path: Path) -> None:
    good = tmp_path / "good"
    recorded(WORK, good)
    data = good.read_bytes()
    newer = data[:8] + struct.pack("<I", 9) + data[12:]
    names = struct.unpack_from("<I", data, 12)[0]
    section = data[: 40 + names] + struct.pack("<II", 77, 0)
    part = data[: 40 + names] + struct.pack("<IIiIQQ", 1, 25, 7, 0, 1, 1) + b"x"
    end = struct.pack("<II", 2, 5) + bytes(5)
    cases = {
        "empty": (b"", "not a trace"),
        "other": (b"SPILLTRC" + bytes(64), "not a trace"),
        "newer": (newer, "format 9"),
        "wider": (data[:36] + struct.pack("<I", 48) + data[40:], "48 bytes instead of 40"),
        "cut": (data[:100], "header"),
        "section": (section, "kind 77"),
        "part of a call": (part, r"byte \d+ .*size 25"),
        "end": (data[: 40 + names] + end, r"byte \d+ .*size 5"),
        "more": (data + end, f"byte {len(data)} "),
    }
    for name, (content, message) in cases.items():
        file = tmp_path / name
        file.write_bytes(content)
        with pytest.raises(ValueError, match=f"{file}: .*{message}"):
            read_preload_trace(file)
    with pytest.raises(ValueError, match=f"{tmp_path / 'missing'}: "):
        is_preload_trace(tmp_path / "missing")


def test_the_command_shows_it(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    recorded(WORK, path)
    env = {**os.environ, "PYTHONPATH": str(PACKAGE)}
    done = run([sys.executable, "-m", "spillway", "trace", "show", str(path)], env)
    assert json.loads(done.stdout)["device"]["allocations"] == 2
    broken = tmp_path / "broken"
    broken.write_bytes(b"SPILLPRE")
    failed = subprocess.run(
        [sys.executable, "-m", "spillway", "trace", "show", str(broken)],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (failed.returncode, failed.stdout) == (2, "")
    assert failed.stderr.startswith(f"spillway trace: {broken}: ") and failed.stderr.count("\n") == 1


def test_what_torch_allocates_is_in_the_trace(tmp_path: Path) -> None:
    """The emulated GPU's own counters show what the program took from CUDA."""
    path = tmp_path / "trace"
    printed = python(
        """
import json, torch
model = torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(4))).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    model(torch.ones(64, 512, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
torch.cuda.synchronize()
process.spillway_emulator_count.restype = c_uint64
stats = torch.cuda.memory_stats()
print(json.dumps([process.spillway_emulator_count(b"cudaMalloc"), stats["segment.all.allocated"],
                  stats["reserved_bytes.all.peak"]]))
""",
        SHIM,
        EMULATOR,
        SPILLWAY_PRELOAD_TRACE=path,
        PYTHONPATH=str(PACKAGE),
        **EMULATED,
    )
    emulator_calls, segments, reserved = json.loads(printed.splitlines()[-1])
    trace = read_preload_trace(path)
    said = summary(trace)
    allocations = [call for call in trace.calls if call.function == "cudaMalloc"]
    assert len(allocations) == emulator_calls >= segments > 0
    assert sum(call.bytes for call in allocations) == said["device"]["peak_bytes"] >= reserved > 0
    assert said["copied_in_bytes"] >= 4 * (512 * 512 + 512) * 4
    assert trace.complete
