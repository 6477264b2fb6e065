# SPDX-License-Identifier: Apache-2.0
"""`spillway bench` on the emulated GPU: what is modeled comes out as such, and mistakes are one line."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from launched import clean_environment
from spillway.bench import programs
from spillway.bench.results import Measured, read
from spillway.report.sizes import span

GIB = 2**30
UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
#: Bytes a second to the device and back, and seconds before each copy: two links that share no number.
LINKS = {
    "50/25": (50 * GIB, 25 * GIB, 10e-6),
    "6/12": (6 * GIB, 12 * GIB, 3e-6),
}

built = pytest.mark.skipif(
    not (programs.FOLDER / "copy_bench").exists(), reason="the micro-benchmarks are not built"
)


def spillway(
    *arguments: str | Path, folder: Path | None = None, **changes: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "spillway", "bench", *arguments],
        env=clean_environment() | {"COLUMNS": "200"} | changes,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.fixture(scope="module")
def measure(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], list[Measured]]:
    """A group's results over one of LINKS, measured once."""

    @cache
    def run(group: str, link: str) -> list[Measured]:
        to_device, to_host, latency = LINKS[link]
        path = tmp_path_factory.mktemp("bench") / "results.json"
        result = spillway(
            *(group, "--emulate", "--json", path),
            *("--link-h2d", str(to_device), "--link-d2h", str(to_host), "--latency", f"{latency * 1e6}us"),
        )
        assert result.returncode == 0, result.stderr
        document = json.loads(path.read_text())
        return [one for program in document["programs"].values() for one in read(program)]

    return run


def size(text: str) -> int:
    return int(text[:-3]) * UNITS[text[-3:]]


def modeled(link: str, direction: str, size: int) -> float:
    """Seconds of one copy."""
    to_device, to_host, latency = LINKS[link]
    return latency + size / (to_device if direction == "to_device" else to_host)


@built
@pytest.mark.parametrize("link", LINKS)
def test_copies_take_what_the_modeled_link_takes(
    link: str, measure: Callable[[str, str], list[Measured]]
) -> None:
    copies = [one for one in measure("copy", link) if one.family == "Copy"]
    seen = set()
    for one in copies:
        direction, kind, length = one.parameters.split()
        if kind == "pageable" and size(length) < 2**22:
            continue  # the host waits for each of these, and its calls show beside a small copy
        seen.add((direction, kind))
        assert one.median == pytest.approx(modeled(link, direction, size(length)), rel=0.02), one
    assert len(seen) == 10  # two directions, five kinds of memory


@built
@pytest.mark.parametrize("link", LINKS)
def test_each_direction_keeps_its_speed_while_the_other_is_busy(
    link: str, measure: Callable[[str, str], list[Measured]]
) -> None:
    duplex = {one.parameters: one for one in measure("copy", link) if one.family == "Duplex"}
    assert len(duplex) == 8  # two directions, four kinds of memory
    for name, one in duplex.items():
        direction, _ = name.split()
        assert one.median == pytest.approx(modeled(link, direction, int(one.counters["bytes"])), rel=0.02)
        assert one.counters["covered"] > 0.99


@built
@pytest.mark.parametrize("link", LINKS)
def test_both_directions_take_the_slower_ones_time(
    link: str, measure: Callable[[str, str], list[Measured]]
) -> None:
    both = [one for one in measure("copy", link) if one.family == "BothWays"]
    assert len(both) == 4
    for one in both:
        slower = max(modeled(link, way, int(one.counters["bytes"])) for way in ("to_device", "to_host"))
        assert one.median == pytest.approx(slower, rel=0.02), one


@built
@pytest.mark.parametrize("link", LINKS)
def test_a_piece_costs_the_link_its_latency(link: str, measure: Callable[[str, str], list[Measured]]) -> None:
    pieces = [one for one in measure("copy", link) if one.family == "Pieces"]
    assert len(pieces) >= 8
    for one in pieces:
        direction, length = one.parameters.split()
        rate = size(length) / modeled(link, direction, size(length)) / 1e9
        assert one.counters["GB_per_s"] == pytest.approx(rate, rel=0.02), one


@built
@pytest.mark.parametrize("link", LINKS)
def test_copies_disappear_behind_kernels_where_nothing_slows_them_down(
    link: str, measure: Callable[[str, str], list[Measured]]
) -> None:
    overlaps = measure("overlap", link)
    assert len(overlaps) == 12  # four kernels; out, in and both
    for one in overlaps:
        assert one.skipped is None
        assert one.counters["overlap"] == pytest.approx(1, abs=0.02), one
        assert one.counters["slow_down"] == pytest.approx(1, abs=0.02), one
        # The copies last throughout, or a slow-down would not be seen.
        assert one.counters["copies_us"] > one.counters["kernel_us"]


@built
def test_kernels_take_what_the_model_states(measure: Callable[[str, str], list[Measured]]) -> None:
    for one in measure("overlap", "50/25"):
        work = max(one.counters["bytes"] / 4e12, one.counters["flops"] / 400e12)  # emulator/device/clock.h
        modeled = one.counters["launches"] * (2e-6 + work) * 1e6
        assert one.counters["kernel_us"] == pytest.approx(modeled, rel=0.02), one


@built
def test_calls_take_host_time_and_a_kernel_waits_for_another_streams_kernel(
    measure: Callable[[str, str], list[Measured]],
) -> None:
    calls = {one.parameters: one for one in measure("calls", "50/25") if one.family == "Call"}
    assert {"event_record", "stream_wait_event", "event_query", "launch_kernel"} < set(calls)
    assert all(one.median > 0 and one.label == "host's time" for one in calls.values())
    [hop] = [one for one in measure("calls", "50/25") if one.family == "Hop"]
    assert hop.skipped is None
    assert hop.median >= 2e-6  # the modeled kernel's own time


@built
def test_what_repeats_asks_the_driver_for_nothing(measure: Callable[[str, str], list[Measured]]) -> None:
    pool = {one.parameters: one.counters for one in measure("pool", "50/25")}
    blocks = {one.parameters: one.counters for one in measure("alloc", "50/25") if one.family == "Block"}
    for size in ("4KiB", "256KiB", "16MiB"):
        assert pool[f"hit arena {size}"]["registrations"] == 0
    assert pool["step"]["registrations"] == 0
    assert 1 <= pool["step"]["pinned_over_allocated"] <= 1.03
    assert pool["grow arena 64MiB"]["registrations"] == 1
    for size in ("4KiB", "4MiB"):
        assert blocks[f"heap {size}"]["driver_allocations"] == 0


@built
def test_every_benchmark_of_the_host_states_whose_time_it_is(
    measure: Callable[[str, str], list[Measured]],
) -> None:
    for group in ("alloc", "pool"):
        for one in measure(group, "50/25"):
            assert one.skipped is None
            assert one.label == "host's time"
            assert 0 < one.least <= one.median <= one.most


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_100"])
def test_the_kernels_compile(architecture: str) -> None:
    found = Path(sysconfig.get_path("purelib")).glob("nvidia/cu13/lib/libnvrtc.so.*")
    library = next(found, None)
    if library is None:
        pytest.skip("NVRTC, which torch's wheels bring, is not installed")
    nvrtc = ctypes.CDLL(str(library))
    source = (Path(__file__).parents[2] / "bench" / "micro" / "kernels.cu").read_bytes()
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    options = (ctypes.c_char_p * 1)(f"--gpu-architecture={architecture}".encode())

    assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, b"kernels.cu", 0, None, None) == 0
    assert nvrtc.nvrtcCompileProgram(program, 1, options) == 0
    assert nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size)) == 0
    image = ctypes.create_string_buffer(size.value)
    assert nvrtc.nvrtcGetCUBIN(program, image) == 0
    for name in (b"empty", b"fill", b"multiply_add", b"triad", b"gemm", b"attention"):
        assert name in image.raw


@built
def test_results_say_that_the_gpu_is_emulated_and_are_kept_under_new_names(tmp_path: Path) -> None:
    for _ in range(2):
        result = spillway("copy", "--emulate", "--filter", "Copy/to_host/arena/1MiB", folder=tmp_path)
        assert result.returncode == 0, result.stderr
        assert "Copy · emulated GPU, virtual clock" in result.stdout
        assert "emulated GPU: results in spillway-bench-" in result.stdout
        assert result.stdout.count("to_host arena 1MiB") == 1
    kept = sorted(tmp_path.iterdir())
    assert len(kept) == 2
    for path in kept:
        assert "emulated-gpu" in path.name
        document = json.loads(path.read_text())
        assert document["device"] == "emulated GPU" and document["emulated"] is True
        assert document["device_clock"] == "virtual"


MISTAKES = {
    "no GPU": ((), "spillway bench: no GPU"),
    "unknown group": (("copies", "--emulate"), "copies: "),
    "unknown option": (("--fast",), "no such option"),
    "no such folder": (
        ("--emulate", "copy", "--json", "missing/out.json"),
        "--json=missing/out.json: ",
    ),
    "no such name": (("--emulate", "copy", "--filter", "zzz"), "--filter=zzz: "),
    "a setting without emulation": (("--link-h2d", "9GiB"), "--link-h2d=9GiB: "),
    "bad value": (("--emulate", "--latency", "ten"), "--latency=ten: "),
}


@built
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_and_status_2(mistake: str, tmp_path: Path) -> None:
    arguments, text = MISTAKES[mistake]
    hidden = {} if "--emulate" in arguments else {"CUDA_VISIBLE_DEVICES": ""}
    result = spillway(*arguments, folder=tmp_path, **hidden)
    assert result.returncode == 2
    assert result.stdout == ""
    assert text in result.stderr and result.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_programs_that_are_not_built_are_named_with_the_way_to_build_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(programs, "FOLDER", tmp_path)
    with pytest.raises(programs.BenchError, match=r"copy_bench: .*ninja .*SPILLWAY_BENCHES=ON") as why:
        programs.find(["copy"])
    assert "\n" not in str(why.value)


def test_a_program_that_fails_is_named_with_its_last_line(tmp_path: Path) -> None:
    program = tmp_path / "copy_bench"
    program.write_text("#!/bin/sh\necho first >&2\necho the reason >&2\nexit 7\n")
    program.chmod(0o755)
    with pytest.raises(programs.BenchError, match=r"^copy_bench: .*\b7 \(the reason\)$"):
        programs.run(program, None, os.environ)


def test_times_are_read_with_their_units_and_skipped_ones_with_their_reason() -> None:
    times = {"run_name": "BM_X/a/b/manual_time", "name": "BM_X/a/b/manual_time_median", "time_unit": "us"}
    entries = [
        {**times, "aggregate_name": "median", "real_time": 2.0, "cpu_time": 1.0, "GB_per_s": 4.0},
        {**times, "aggregate_name": "max", "real_time": 3.0, "cpu_time": 1.0, "GB_per_s": 5.0},
        {"run_name": "BM_Y", "name": "BM_Y", "error_occurred": True, "error_message": "skipped: why"},
    ]
    x, y = read({"benchmarks": entries})
    assert (x.family, x.parameters, x.median, x.most) == ("X", "a b", 2e-6, 3e-6)
    assert x.counters == {"GB_per_s": 4.0}
    assert (y.family, y.skipped) == ("Y", "skipped: why")


@pytest.mark.parametrize(
    "nanoseconds, text",
    [(2e9, "2.00 s"), (1.5e6, "1.5 ms"), (1e3, "1.0 µs"), (25, "25 ns"), (9e11, "15.0 min")],
)
def test_a_duration_has_its_unit(nanoseconds: float, text: str) -> None:
    assert span(nanoseconds) == text


@built
def test_saved_tensors_move_in_the_region_that_moves_them(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    result = spillway("hooks", "--emulate", "--filter", "4KiB", "--json", path)
    assert result.returncode == 0, result.stderr
    measured = {one.parameters: one for one in read(json.loads(path.read_text())["programs"]["hooks_bench"])}
    moved = {name: one.counters.get("offloaded") for name, one in measured.items()}
    assert moved == {"plain 4KiB": None, "stays 4KiB": 0, "moves 4KiB": 1}
    assert {one.label for one in measured.values()} == {"host's time"}
    assert all(one.median > 0 for one in measured.values())
