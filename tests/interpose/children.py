# SPDX-License-Identifier: Apache-2.0
"""Runs children under the preload library. The paths come from tests/interpose/CMakeLists.txt."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

LIBRARIES = Path(os.environ.get("SPILLWAY_TEST_LIBRARIES", "")).resolve()
CLIENTS = Path(os.environ.get("SPILLWAY_TEST_CLIENTS", "")).resolve()
SHIM = LIBRARIES / "libspillway_preload.so"
EMULATOR = LIBRARIES / "libspillway_emulator.so"
DRIVER = CLIENTS / "driver" / "libcuda.so.1"

PRELUDE = """
import ctypes, os, sys
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint64, c_void_p
process = ctypes.CDLL(None)
process.spillway_preload_count.restype = c_uint64
for text in ("stopped", "refusal"):
    getattr(process, "spillway_preload_" + text).restype = c_char_p
count = lambda name: process.spillway_preload_count(name.encode())
address = lambda function: ctypes.cast(function, c_void_p).value
def owner(at):
    class Info(ctypes.Structure):
        _fields_ = [("file", c_char_p), ("base", c_void_p), ("name", c_char_p), ("at", c_void_p)]
    info = Info()
    if not at or not process.dladdr(c_void_p(at), byref(info)):
        return "-", "-"
    return os.path.basename(info.file.decode()), (info.name or b"-").decode()
"""


def environment(*preload: Path | str, **settings: str | Path) -> dict[str, str]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("SPILLWAY_")}
    plain.pop("PYTHONPATH", None)
    return plain | {"LD_PRELOAD": ":".join(map(str, preload))} | {k: str(v) for k, v in settings.items()}


def run(command: list[str], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, f"{command}: status {done.returncode}\n{done.stdout}{done.stderr}"
    return done


def python(body: str, *preload: Path | str, **settings: str | Path) -> str:
    """Runs Python code, PRELUDE before it, and gives what it printed."""
    env = environment(*preload, **settings)
    done = run([sys.executable, "-c", PRELUDE + body], env)
    assert done.stderr == "" or "SPILLWAY_LOG" in env, done.stderr
    return done.stdout.strip()
