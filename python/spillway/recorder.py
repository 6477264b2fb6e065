# SPDX-License-Identifier: Apache-2.0
"""Records a job for `spillway report` and `spillway top`."""

from __future__ import annotations

import atexit
import json
import logging
import os
import sys
import sysconfig
import time
from pathlib import Path
from typing import Any

from spillway._load import glue
from spillway._process import start_of
from spillway.emulator import is_dry_run

# Here, and not in a function that runs at exit: a module that defines a dataclass executes text, by which
# CPython forgets that a KeyboardInterrupt ended the program. It would exit with status 1 instead of dying by
# SIGINT.
from spillway.planning import explain
from spillway.report.model_state import SUFFIX as STATE
from spillway.report.model_state import write_model_state
from spillway.report.plans import SUFFIX, write_plans
from spillway.statistics import stats
from spillway.top import pages

__all__ = ["FORMAT", "start", "stop"]

FORMAT = 2  # of the run log: docs/reports.md

_log = logging.getLogger("spillway")
_asked_in: int | None = None  # the process that start() was called in
_log_file: Path | None = None


def start(folder: str | os.PathLike[str] | None, operators: bool = False, kernels: int = 0) -> None:
    """Record this process from its first use of CUDA: to a new file in `folder`, and to the statistics page
    of ``spillway top``. Processes that never use CUDA, and forked children of those that do, record nothing.
    Later calls have no effect.

    Creates the folder if it is missing; only the user can read it and the file. Write errors are logged, and
    the job continues. With ``None`` only the page is written.

    Memory gets automatic tags as after ``spillway.tags.watch()``, so that the report can name its module.
    With `operators`, the outermost operators and the nodes of backward passes are timed by two events each.
    With `kernels`, the kernels of this many steps are named and timed by CUPTI, which no profiler can use
    meanwhile; if a profiler uses it already, that is logged.
    """
    global _asked_in
    if _asked_in is not None:
        return
    _asked_in = os.getpid()
    import torch

    where = None if folder is None else Path(folder).absolute()
    torch.cuda._lazy_call(lambda: _begin(where, operators, kernels))


def stop() -> None:
    """Ends the recording before the process ends. Does nothing if nothing is recorded."""
    if glue().run_log_on():
        if is_dry_run():  # its devices' clocks stand still unless someone waits for them
            _wait_for_devices()
        _leave_plans()
        _leave_model_state()
        glue().stop_run_log()


def _leave_plans() -> None:
    """Writes the plans of this process's budgets beside the log."""
    if _log_file is None:
        return
    found = (explain(tag, device) for tag in glue().stats()["tags"] for device in glue().stats()["devices"])
    try:
        write_plans(_log_file.with_suffix(SUFFIX), [plan for plan in found if plan is not None])
    except OSError as error:
        _log.warning("the report lacks the plans: %s", error)


def _leave_model_state() -> None:
    """Writes this process's model state beside the log."""
    if _log_file is None:
        return
    try:
        write_model_state(_log_file.with_suffix(STATE), stats()["model_state"])
    except OSError as error:
        _log.warning("the report lacks the model state: %s", error)


def _wait_for_devices() -> None:
    import torch

    native: Any = torch._C
    for index in range(torch.cuda.device_count()):
        if native._cuda_hasPrimaryContext(index):
            torch.cuda.synchronize(index)


def _begin(folder: Path | None, operators: bool, kernels: int) -> None:
    try:
        _begin_in(folder, operators)
    except Exception as error:  # someone else's process: whatever it is, the job goes on
        _log.warning("the report cannot be written: %s", error)
        return
    try:
        if kernels:
            glue().watch_kernels(kernels, [str(path) for path in _cupti_folders()])
    except Exception as error:
        _log.warning("kernels cannot be recorded: %s", error)


def _cupti_folders() -> list[Path]:
    """Where the wheels of a CUDA build of torch have CUPTI."""
    return sorted(Path(sysconfig.get_path("purelib")).glob("nvidia/*/lib"))


def _begin_in(folder: Path | None, operators: bool) -> None:
    from spillway._module_calls import expect_global_hooks
    from spillway.cpu_offload import end_steps_with_optimizers
    from spillway.roles import watch

    pages.remove_stale()
    page = pages.path_of(os.getpid())
    file = ""
    if folder is not None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        global _log_file
        _log_file = folder / f"{os.getpid()}-{start_of(os.getpid())}.spillway"
        file = str(_log_file)
    # Paths as bytes: they need not be text.
    glue().start_run_log(os.fsencode(file), json.dumps(_about(page)), str(page) if page else "")
    # Without the interpreter's ordinary end the log has no end either, and the report states that.
    atexit.register(stop)
    end_steps_with_optimizers()
    if glue().stats()["uses_spillway"]:
        expect_global_hooks()
        watch()
    if operators:  # after what gives the nodes of backward passes their tags, to be called after it
        glue().time_operators()


def _launch() -> str | None:
    """The same in all processes of one ``spillway run``, and in no other: the outermost of this process and
    those above it that were started with the same report asked for. None where this one was not."""
    asked = os.environb.get(b"SPILLWAY_REPORT")
    if not asked:
        return None
    variable = b"SPILLWAY_REPORT=" + asked
    process, launch = os.getpid(), None
    try:
        while variable in Path(f"/proc/{process}/environ").read_bytes().split(b"\0"):
            launch = f"{process}-{start_of(process)}"
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            process = int(fields[1])  # its parent
    except OSError:  # it has ended, or is another user's
        pass
    return launch


def _about(page: Path | None) -> dict[str, Any]:
    import torch

    import spillway

    emulated = os.environ.get("SPILLWAY_EMULATE") == "1"
    clock = os.environ.get("SPILLWAY_EMULATE_CLOCK") or ("virtual" if is_dry_run() else "real")
    devices = []
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        devices.append({"name": properties.name, "bytes": properties.total_memory})
    return {
        "spillway_run_log": FORMAT,
        "spillway": spillway.__version__,
        "torch": torch.__version__,
        "python": ".".join(map(str, sys.version_info[:3])),
        "process": os.getpid(),
        "process_start": start_of(os.getpid()),
        "rank": os.environ.get("RANK"),
        "launch": _launch(),
        "started": time.time(),
        "command": [sys.executable, *sys.orig_argv[1:]],
        "emulated": emulated,
        "clock": clock if emulated else "device",
        "shape_only": is_dry_run(),
        "devices": devices,
        "allocator": "spillway"
        if glue().stats()["uses_spillway"]
        else torch.cuda.memory.get_allocator_backend(),
        "page": str(page) if page else None,
    }
