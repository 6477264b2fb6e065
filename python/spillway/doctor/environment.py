# SPDX-License-Identifier: Apache-2.0
"""Environment variables and preloaded libraries that affect Spillway."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from spillway import launch
from spillway.doctor.finding import Finding, ok, problem, warning

# Libraries that stand between a program and CUDA, by a part of their file name.
INTERPOSERS = {
    "libnvshare": "nvshare",
    "libvgpu": "HAMi-core",
    "libcuda-control": "a GPU sharing layer",
    "torch_memory_saver": "torch_memory_saver",
    "libnvinject": "Nsight",
    "libToolsInjection": "Nsight Systems",
}
# Set by tools that use the only profiler connection that CUDA has.
PROFILERS = (
    "CUDA_INJECTION64_PATH",
    "NVTX_INJECTION64_PATH",
    "NSYS_PROFILING_SESSION_ID",
    "NV_COMPUTE_PROFILER_PERFWORKS_DIR",
)


def settings() -> Iterator[Finding]:
    given = sorted(name for name, value in os.environ.items() if name.startswith("SPILLWAY_") and value)
    try:
        launch.check_inherited(os.environ)
    except launch.LaunchError as error:
        yield problem("settings", str(error), "correct the variable or unset it")
        return
    yield ok("settings", ", ".join(f"{name}={os.environ[name]}" for name in given) or "none")


def interposers() -> Iterator[Finding]:
    preloaded = [each for each in re.split(r"[:\s]+", os.environ.get("LD_PRELOAD", "")) if each]
    with contextlib.suppress(OSError):
        preloaded += Path("/etc/ld.so.preload").read_text().split()
    ours = (launch.SHIM, launch.EMULATOR)
    allowed = {str(each) for each in ours} | {each.name for each in ours}  # by name: its path has a space
    for each in preloaded:
        if Path(each).name in allowed and each not in allowed:
            yield problem("interposers", f"{each} belongs to another Spillway", "remove it from LD_PRELOAD")
            return
    known = {who for each in preloaded for part, who in INTERPOSERS.items() if part in Path(each).name}
    if known:
        yield warning(
            "interposers",
            f"preloaded: {', '.join(sorted(known))}",
            "it intercepts CUDA calls, too: if something fails, try without it",
        )
    else:
        yield ok("interposers", "none known")


def profilers() -> Iterator[Finding]:
    given = [name for name in PROFILERS if os.environ.get(name)]
    if given:
        yield warning(
            "profilers", f"{', '.join(given)} set", "to time kernels by CUPTI, run without this tool"
        )
    else:
        yield ok("profilers", "none")


def pytorch() -> Iterator[Finding]:
    if os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD") == "0":
        yield problem(
            "PyTorch",
            "TORCH_DEVICE_BACKEND_AUTOLOAD=0 prevents Spillway from starting in scripts",
            "unset it, or call spillway from the script",
        )
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        if os.environ.get(name):
            yield warning(
                "PyTorch",
                f"{name}={os.environ[name]}",
                "Spillway's allocator ignores it; use --allocator torch to apply it",
            )
    if os.environ.get("CUDA_VISIBLE_DEVICES") == "":
        yield problem("PyTorch", "CUDA_VISIBLE_DEVICES is empty: no GPU is visible", "unset it")
