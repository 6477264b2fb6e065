# SPDX-License-Identifier: Apache-2.0
"""The times of calls in a trace: exact moments, and those that are put between them."""

from __future__ import annotations

import struct
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from children import DRIVER, SHIM, python
from spillway.preload_trace import PreloadTrace, read_preload_trace

CALLS = f"""
import threading
driver = ctypes.CDLL({str(DRIVER)!r})
launch = lambda: driver.cuLaunchKernel(c_void_p(7), 1, 1, 1, 1, 1, 1, 0, c_void_p(5), None, None)
"""


def recorded(body: str, path: Path) -> PreloadTrace:
    """What a program did under the preload library, that may call `driver` and `launch`."""
    python(CALLS + body, SHIM, SPILLWAY_PRELOAD_TRACE=path)
    return read_preload_trace(path)


def timed_in(path: Path) -> list[int]:
    """Which calls of a file have a moment of their own."""
    data = path.read_bytes()
    at, found = 40 + struct.unpack_from("<I", data, 12)[0], []
    while at < len(data):
        kind, length = struct.unpack_from("<II", data, at)
        if kind == 1:
            found += [ticks for ticks, *_ in struct.iter_unpack("<Q32x", data[at + 32 : at + 8 + length])]
        at += 8 + length
    return [index for index, ticks in enumerate(found) if ticks]


def test_one_launch_in_eight_reads_the_clock_and_every_other_call(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    calls = recorded(
        """
for _ in range(2):
    for _ in range(20): launch()
    driver.cuMemFree_v2(c_uint64(4096))
""",
        path,
    ).calls
    assert timed_in(path) == [0, 8, 16, 20, 24, 32, 40, 41]
    assert [call.function for call in calls] == 2 * (20 * ["cuLaunchKernel"] + ["cuMemFree_v2"])
    moments = [call.nanoseconds for call in calls]
    assert moments == sorted(moments) and moments[24] < moments[28] < moments[32]


def test_the_first_launch_of_each_thread_has_a_moment(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    recorded(
        """
for _ in range(3):  # a thread that has ended leaves its ring to the next
    thread = threading.Thread(target=lambda: [launch() for _ in range(3)])
    thread.start(); thread.join()
""",
        path,
    )
    assert timed_in(path) == [0, 3, 6]


def test_what_makes_something_is_reported_when_it_ends_and_all_else_when_it_begins(tmp_path: Path) -> None:
    calls = recorded(
        """
@ctypes.CFUNCTYPE(None)
def another_thread_calls():
    thread = threading.Thread(target=lambda: driver.cuMemsetD32_v2(c_uint64(8), 7, c_size_t(1)))
    thread.start(); thread.join()

at = c_uint64(4096)
driver.stub_during(another_thread_calls)
driver.cuMemAlloc_v2(byref(at), c_size_t(512))
driver.stub_during(another_thread_calls)
driver.cuMemFree_v2(at)
""",
        tmp_path / "trace",
    ).calls
    assert [call.function for call in calls] == [
        "cuMemsetD32_v2",
        "cuMemAlloc_v2",
        "cuMemFree_v2",
        "cuMemsetD32_v2",
    ]


def test_launches_without_a_moment_follow_the_one_before_as_closely_as_most_do(tmp_path: Path) -> None:
    def calls(*ticks: int) -> bytes:
        return b"".join(struct.pack("<QQQQHHi", each, 0, 0, 0, 0, 0, 0) for each in ticks)

    def section(thread: int, now: int, body: bytes) -> bytes:
        return struct.pack("<IIiIQQ", 1, 24 + len(body), thread, 0, now, now) + body

    names = b"launch\n\nlaunch\n\n"
    head = b"SPILLPRE" + struct.pack("<IIQQiI", 2, len(names), 1000, 1000, 7, 40) + names
    path = tmp_path / "trace"
    path.write_bytes(
        head
        + section(1, 9000, calls(1020, 0, 0, 0, 1060, 0, 1090, 0, 0))  # the last, then a pause
        + section(2, 1200, calls(0, 0, 1030, 1040))
    )
    reported = [(call.thread, call.nanoseconds) for call in read_preload_trace(path).calls]
    assert [at for thread, at in reported if thread == 1] == [20, 30, 40, 50, 60, 75, 90, 105, 120]
    assert [at for thread, at in reported if thread == 2] == [10, 20, 30, 40]
    assert [at for _, at in reported] == sorted(at for _, at in reported)


def test_the_first_launch_of_each_piece_has_a_moment(tmp_path: Path) -> None:
    python(
        f"""{CALLS}
for name, launches in ("first", 5), ("second", 16_384):  # the ring goes round in the second
    process.spillway_preload_trace_begin(f"{tmp_path}/{{name}}".encode())
    for _ in range(launches): launch()
    process.spillway_preload_trace_end()
""",
        SHIM,
    )
    timed = timed_in(tmp_path / "second")
    assert timed[:2] == [0, 8] and 16_384 - 5 in timed
