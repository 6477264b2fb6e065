# SPDX-License-Identifier: Apache-2.0
"""Where the programs of the micro-benchmarks are, and running them."""

from __future__ import annotations

import json
import os
import subprocess
import sysconfig
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from spillway.launch import PACKAGE

#: Of an installed package and of the build tree alike.
FOLDER = PACKAGE / "bin"
BUILD = (
    "In the source tree, build it with `cmake --preset release && ninja -C build/release micro_benchmarks` "
    "(needs Google Benchmark: apt install libbenchmark-dev). For an installed package, run "
    "`pip install --no-build-isolation -C cmake.define.SPILLWAY_BENCHES=ON .`"
)

GROUPS: dict[str, tuple[str, ...]] = {
    "overlap": ("overlap_bench",),
    "copy": ("copy_bench",),
    "calls": ("calls_bench",),
    "alloc": ("alloc_bench",),
    "hooks": ("hooks_bench",),
    "pool": ("pool_bench",),
}


class BenchError(Exception):
    """A program is missing, or has failed. The message is one line for the user."""


def find(groups: Sequence[str]) -> list[Path]:
    """The programs of these groups, in their order. Raises BenchError for the first that is missing."""
    found = [FOLDER / program for group in groups for program in GROUPS[group]]
    for path in found:
        if not path.exists():
            raise BenchError(f"{path}: is missing. {BUILD}")
    return found


def with_nvrtc(env: Mapping[str, str]) -> dict[str, str]:
    """`env` with the NVRTC of torch's wheels in LD_LIBRARY_PATH, after the folders that are set."""
    wheel = Path(sysconfig.get_path("purelib")) / "nvidia" / "cu13" / "lib"
    folders = [*filter(None, env.get("LD_LIBRARY_PATH", "").split(os.pathsep)), str(wheel)]
    return {**env, "LD_LIBRARY_PATH": os.pathsep.join(folders)} if wheel.is_dir() else dict(env)


def run(program: Path, filter: str | None, env: Mapping[str, str]) -> dict[str, Any]:
    """A program's measurements, as Google Benchmark's JSON. Raises BenchError if it fails."""
    with tempfile.TemporaryDirectory(prefix="spillway-bench-") as folder:
        path = Path(folder) / "out.json"
        command = [str(program), f"--benchmark_out={path}", "--benchmark_out_format=json"]
        if filter is not None:
            command.append(f"--benchmark_filter={filter}")
        done = subprocess.run(
            command,
            env=with_nvrtc(env),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        words = done.stderr.strip().splitlines()
        if done.returncode != 0:
            ended = f"status {done.returncode}" if done.returncode > 0 else f"signal {-done.returncode}"
            last = words[-1] if words else "no message"
            raise BenchError(f"{program.name}: failed with {ended} ({last.removeprefix(f'{program}: ')})")
        text = path.read_text() if path.exists() else ""
    # A filter that fits nothing leaves an empty file.
    return json.loads(text) if text else {"benchmarks": []}
