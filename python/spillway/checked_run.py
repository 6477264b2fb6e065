# SPDX-License-Identifier: Apache-2.0
"""Runs a command to its end, and counts what the order checker reports in it and in all processes that it
starts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from spillway._text import printable

REPORTED = 3
NOT_EXECUTABLE = 126

_FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT)
_FROM_TERMINAL = (signal.SIGINT, signal.SIGQUIT)


def run_checked(program: str, command: Sequence[str], env: Mapping[str, str]) -> int:
    """The command's exit status, REPORTED where it is 0 and there were reports. Ends by the command's signal
    where one killed it.

    Each process adds a byte for each report to a private file, which needs nothing of how it ends. The last
    line on stderr is the sum.
    """
    with tempfile.NamedTemporaryFile(prefix="spillway-check-") as counted:
        status = run_to_end(program, command, {**env, "SPILLWAY_EMULATE_REPORTS": counted.name})
        if status is None:
            return NOT_EXECUTABLE
        reports = os.path.getsize(counted.name)
    print(f"spillway-check: {reports} reports", file=sys.stderr, flush=True)
    status = end_alike(status)
    return REPORTED if status == 0 and reports > 0 else status


def run_to_end(program: str, command: Sequence[str], env: Mapping[str, str], **options: Any) -> int | None:
    """The command's status as subprocess has it, with `options` for Popen; this process's signals are passed
    on to it. None, and a line on stderr, where it cannot be started."""
    try:
        child = subprocess.Popen(list(command), executable=program, env=env, **options)
    except OSError as error:
        print(f"spillway run: {printable(program)}: {error.strerror}", file=sys.stderr)
        return None
    _forward_signals(child)
    return child.wait()


def end_alike(status: int) -> int:
    """`status`, or an end of this process by the signal that it says."""
    if status >= 0:
        return status
    if -status != signal.SIGKILL:
        signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
    return 128 - status


def _forward_signals(child: subprocess.Popen[bytes]) -> None:
    for number in _FORWARDED:
        signal.signal(number, lambda received, _: child.send_signal(received))
    for number in _FROM_TERMINAL:
        signal.signal(number, lambda received, _: None if _in_foreground() else child.send_signal(received))


def _in_foreground() -> bool:
    """The terminal's keys reach the whole group, so that the command has had the signal already."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
