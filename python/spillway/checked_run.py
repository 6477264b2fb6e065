# SPDX-License-Identifier: Apache-2.0
"""Runs a command to its end, and counts what the order checker reports in it and in all processes that it
starts."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from spillway._files import reason_of
from spillway._scratch import scratch_folder
from spillway._text import printable

REPORTED = 3
NOT_EXECUTABLE = 126

_FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT)
_FROM_TERMINAL = (signal.SIGINT, signal.SIGQUIT)
_PR_SET_PDEATHSIG = 1


def run_checked(program: str, command: Sequence[str], env: Mapping[str, str]) -> int:
    """The command's exit status, REPORTED where it is 0 and there were races. Ends by the command's signal
    where one killed it.

    Each process appends a byte for each race to a private file, so that the count is right however it ends.
    The last line on stderr is the sum.
    """
    with scratch_folder() as folder:
        counted = folder / "races"
        counted.touch(0o600)
        status = run_to_end(program, command, {**env, "SPILLWAY_EMULATE_RACES": str(counted)})
        if status is None:
            return NOT_EXECUTABLE
        races = counted.stat().st_size
    print(f"spillway-check: {races} race{'' if races == 1 else 's'}", file=sys.stderr, flush=True)
    status = end_alike(status)
    return REPORTED if status == 0 and races > 0 else status


def run_to_end(program: str, command: Sequence[str], env: Mapping[str, str], **options: Any) -> int | None:
    """The command's status as subprocess has it, with `options` for Popen; this process's signals are passed
    on to it, and SIGKILL kills it too. None, and a line on stderr, where it cannot be started.

    Requires the main thread."""
    end_with = _end_with(os.getpid())
    try:
        child = subprocess.Popen(list(command), executable=program, env=env, preexec_fn=end_with, **options)
    except OSError as error:
        print(f"spillway: {printable(program)}: cannot be executed ({reason_of(error)})", file=sys.stderr)
        return None
    _forward_signals(child)
    return child.wait()


def _end_with(launcher: int) -> Callable[[], None]:
    """For a child between fork and exec: the kernel kills it when the thread that forked it ends, as when the
    launcher is killed. Processes that the command starts are not killed."""
    prctl = ctypes.CDLL(None).prctl  # looked up before the fork

    def ask() -> None:
        prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))
        if os.getppid() != launcher:  # it ended before the request
            os.kill(os.getpid(), signal.SIGKILL)

    return ask


def end_alike(status: int) -> int:
    """`status`, or ends this process by the signal that it encodes."""
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
