# SPDX-License-Identifier: Apache-2.0
"""What `spillway doctor` finds, on machines that are made up."""

from __future__ import annotations

import ctypes
import json
import subprocess
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import spillway
from spillway import _load, launch
from spillway.doctor import environment, gpu, host, software
from spillway.doctor.finding import Finding, Level

(BUILT,) = _load.built_for()


def doctor(*arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
    return spillway("doctor", *arguments, **changes)


def levels(findings: Iterable[Finding]) -> dict[str, Level]:
    return {finding.what: finding.level for finding in findings}


class Driver:
    """As libcuda.so.1, with one device."""

    def __init__(self, version: int, count: int = 1) -> None:
        self.version, self.count = version, count

    def cuInit(self, _: int) -> int:
        return 0

    def cuDriverGetVersion(self, out: Any) -> int:
        out._obj.value = self.version
        return 0

    def cuDeviceGetCount(self, out: Any) -> int:
        out._obj.value = self.count
        return 0

    def cuDeviceGet(self, out: Any, index: int) -> int:
        out._obj.value = index
        return 0

    def cuDeviceGetName(self, name: Any, size: int, _: Any) -> int:
        ctypes.memmove(name, b"A GPU\0", 6)
        return 0

    def cuDeviceTotalMem_v2(self, out: Any, _: Any) -> int:
        out._obj.value = 80 * 2**30
        return 0

    def cuDeviceGetAttribute(self, out: Any, number: int, _: Any) -> int:
        out._obj.value = {50: 0, 33: 0x1B, 34: 0, 75: 9, 76: 0}[number]
        return 0


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty root folder, and no GPU."""
    monkeypatch.setattr(host, "ROOT", tmp_path)
    monkeypatch.setattr(gpu, "PCI", tmp_path / "pci")
    monkeypatch.delenv("SPILLWAY_EMULATE", raising=False)
    return tmp_path


def with_driver(monkeypatch: pytest.MonkeyPatch, driver: Driver | None) -> None:
    monkeypatch.setattr(gpu, "library", lambda: driver)
    gpu.device_count.cache_clear()


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_no_driver_is_a_problem_that_names_the_emulated_gpu(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_driver(monkeypatch, None)
    (found,) = gpu.driver()
    assert found.level is Level.PROBLEM
    assert "spillway emulate" in found.advice
    assert levels(gpu.devices()) == {"GPU": Level.PROBLEM}


def test_an_old_driver_is_a_problem(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_driver(monkeypatch, Driver(12080))
    (found,) = gpu.driver()
    assert (found.level, found.text) == (Level.PROBLEM, "CUDA 12.8 is older than torch's CUDA 13")


@pytest.mark.parametrize(("lanes", "level"), [(8, Level.WARNING), (16, Level.OK)])
def test_a_link_that_is_narrower_than_it_could_be(
    lanes: int, level: Level, machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_driver(monkeypatch, Driver(13000))
    for which, width in (("current", lanes), ("max", 16)):
        write(machine / f"pci/0000:1b:00.0/{which}_link_speed", "32.0 GT/s PCIe\n")
        write(machine / f"pci/0000:1b:00.0/{which}_link_width", f"{width}\n")
    found = list(gpu.devices())
    assert levels(found) == {"GPU 0": Level.OK, "GPU 0: link": level}
    assert found[0].text == "A GPU, 80.0 GiB, compute 9.0"


@pytest.mark.parametrize(("limit", "level"), [("8589934592", Level.WARNING), ("max", Level.OK)])
def test_a_control_group_with_little_memory(limit: str, level: Level, machine: Path) -> None:
    write(machine / "proc/meminfo", f"MemTotal: {64 * 2**20} kB\nMemAvailable: {60 * 2**20} kB\n")
    write(machine / "proc/self/cgroup", "0::/job/step\n")
    write(machine / "sys/fs/cgroup/job/step/memory.max", "max\n")
    write(machine / "sys/fs/cgroup/job/memory.max", f"{limit}\n")
    assert levels(host.memory()) == {"host memory": Level.OK, "control group": level}


def test_small_sizes_have_a_unit_that_fits(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(machine / "proc/meminfo", f"MemTotal: {64 * 2**20} kB\nMemAvailable: 512 kB\n")
    monkeypatch.setattr(host.resource, "getrlimit", lambda _: (64 * 2**10, 64 * 2**10))
    monkeypatch.setattr(host.os, "statvfs", lambda _: SimpleNamespace(f_frsize=4096, f_blocks=16384))
    assert next(iter(host.memory())).text == "64.0 GiB, 512.0 KiB of it available"
    assert [finding.text.split(" (")[0] for finding in host.locked_memory()] == ["at most 64.0 KiB"]
    assert [finding.text for finding in host.shared_memory()] == ["64.0 MiB"]


@pytest.mark.parametrize(("allowed", "level"), [("0", Level.WARNING), ("0-1", Level.OK)])
def test_memory_of_one_node_only(allowed: str, level: Level, machine: Path) -> None:
    for node in range(2):
        (machine / f"sys/devices/system/node/node{node}").mkdir(parents=True)
    write(machine / "proc/self/status", f"Name:\tpython\nMems_allowed_list:\t{allowed}\n")
    assert levels(host.numa()) == {"NUMA": level}


@pytest.mark.parametrize(
    ("name", "value", "check", "level"),
    [
        ("LD_PRELOAD", "/opt/libnvshare.so", environment.interposers, Level.WARNING),
        ("LD_PRELOAD", "/usr/lib/libjemalloc.so.2", environment.interposers, Level.OK),
        ("LD_PRELOAD", "/opt/libspillway_preload.so", environment.interposers, Level.PROBLEM),
        ("LD_PRELOAD", f"{launch.SHIM}:{launch.EMULATOR}", environment.interposers, Level.OK),
        ("LD_PRELOAD", launch.SHIM.name, environment.interposers, Level.OK),  # with a space in its path
        ("CUDA_INJECTION64_PATH", "/opt/nsys.so", environment.profilers, Level.WARNING),
        ("TORCH_DEVICE_BACKEND_AUTOLOAD", "0", environment.pytorch, Level.PROBLEM),
        ("PYTORCH_ALLOC_CONF", "expandable_segments:True", environment.pytorch, Level.WARNING),
        ("CUDA_VISIBLE_DEVICES", "", environment.pytorch, Level.PROBLEM),
        ("SPILLWAY_BUDGT", "1GiB", environment.settings, Level.PROBLEM),
        ("SPILLWAY_BUDGET", "1GiB", environment.settings, Level.OK),
    ],
)
def test_the_environment(
    name: str, value: str, check: Any, level: Level, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    (found,) = check()
    assert found.level is level
    assert (found.advice == "") == (level is Level.OK)


def test_another_torch_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(software, "version", lambda _: "2.9.1")
    (found,) = software.torch()
    assert (found.level, found.text) == (Level.PROBLEM, f"2.9.1, but this build is for {BUILT}")
    assert found.advice.startswith("install torch 2.11 to 2.15, then build")


def test_the_exit_status_states_whether_there_is_a_problem() -> None:
    well = doctor("--json", SPILLWAY_EMULATE="1")
    found = json.loads(well.stdout)
    assert (well.returncode, found["worst"]) in ((0, "ok"), (0, "warning"))
    assert {finding["what"] for finding in found["findings"]} >= {"Python", "torch", "driver", "host memory"}
    ill = doctor(SPILLWAY_EMULATE="1", SPILLWAY_BUDGET="much")
    assert ill.returncode == 1
    assert "SPILLWAY_BUDGET=much: expected a size" in ill.stdout
