# SPDX-License-Identifier: Apache-2.0
"""Python, torch, and what was built for them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

from spillway import _load
from spillway.commands.interpreters import torch_without_cuda
from spillway.doctor.finding import Finding, ok, problem
from spillway.launch import EMULATOR, LIBRARIES, SHIM

REBUILD = f"build Spillway with this interpreter: {_load.REBUILD}"
INSTALL = f"install {_load.SUPPORTED} with CUDA"


def python() -> Iterator[Finding]:
    this = sys.version.split()[0]
    if _load.fits_interpreter():
        yield ok("Python", f"{this}, {sys.executable}")
    else:
        yield problem("Python", f"{this}: this build is not for {_load.python_tag()}", REBUILD)


def torch() -> Iterator[Finding]:
    try:
        found = version("torch")
    except PackageNotFoundError:
        yield problem("torch", "is not installed", INSTALL)
        return
    if torch_without_cuda() is not None:
        yield problem("torch", f"{found} is not a CUDA build", INSTALL)
    if not _load.why_not(found):
        yield ok("torch", f"{found}, which this build is for")
    else:
        have = ", ".join(sorted(_load.built_for())) or "no torch"
        advice = REBUILD if _load.supported(found) else f"install {_load.SUPPORTED}, then {REBUILD}"
        yield problem("torch", f"{found}, but this build is for {have}", advice)


def libraries() -> Iterator[Finding]:
    missing = [each.name for each in (SHIM, EMULATOR, LIBRARIES / "libspillway.so") if not each.exists()]
    if missing:
        yield problem("libraries", f"missing: {', '.join(missing)}", "install the package again")
    else:
        yield ok("libraries", str(LIBRARIES))
