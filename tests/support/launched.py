# SPDX-License-Identifier: Apache-2.0
"""Runs the `spillway` command on programs that are forked from a process that has imported torch."""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

from forked import Forked
from spillway.launch import environment as for_emulated_gpu


def clean_environment() -> dict[str, str]:
    return {
        name: value for name, value in os.environ.items() if not name.startswith(("SPILLWAY_", "LD_PRELOAD"))
    }


@cache
def to_fork() -> Forked:
    first = Forked(for_emulated_gpu(emulate=True, base=clean_environment()))
    atexit.register(first.close)
    return first


def spillway(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Where its command is an interpreter with a program, a stand-in takes the interpreter's place."""
    words = [str(each) for each in arguments]
    fork = {}
    at = words.index("--") + 1 if "--" in words else len(words)
    if words[at : at + 1] == [sys.executable] and words[at + 1] != "-m":
        words[at:] = to_fork().stand_in(*words[at + 1 :])
        fork = to_fork().variables
    return subprocess.run(
        [sys.executable, "-m", "spillway", *words],
        env=clean_environment() | fork | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=3600,
    )
