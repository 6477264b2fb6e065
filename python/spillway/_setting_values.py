# SPDX-License-Identifier: Apache-2.0
"""Checks of settings that only the launcher makes: files, folders, profiles, faults of the emulated GPU. Each
takes the name of the option or variable and its text, and returns the text to store in the variable, or
raises LaunchError."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from spillway._files import reason_of

LIBRARIES = Path(__file__).absolute().parent / "lib"
EMULATOR = LIBRARIES / "libspillway_emulator.so"


class LaunchError(ValueError):
    """An invalid value, or a missing library. The message is one line for the user."""


def fault(name: str, value: str) -> str:
    """Asks the emulator, which has the list of functions and errors."""
    if EMULATOR.exists():
        import ctypes

        fault_of = ctypes.CDLL(str(EMULATOR)).spillway_emulator_fault
        fault_of.restype = ctypes.c_char_p
        if (wrong := fault_of(value.encode())) is not None:
            reason = wrong.decode()
            item = re.match(r'fault "(.*?)": ', reason)
            subject = f"{name}={item[1] if item else value}"
            raise LaunchError(f"{subject}: {reason[item.end() if item else 0 :]}")
    return value


def folder(name: str, value: str) -> str:
    """An absolute path: programs change their working folder."""
    if not value:
        raise LaunchError(f"{name}=: expected a folder, such as out")
    folder = _absolute(name, value)
    mode = _mode(name, value, folder)
    if mode is not None and not stat.S_ISDIR(mode):
        raise LaunchError(
            f"{name}={value}: expected a folder, not a file. Name a folder; it is created if missing."
        )
    return folder


def _absolute(name: str, value: str) -> str:
    try:
        return str(Path(value).absolute())
    except OSError as error:
        raise LaunchError(
            f"{name}={value}: the working folder cannot be read ({reason_of(error)}). Give an absolute path."
        ) from None


def _mode(name: str, value: str, path: str) -> int | None:
    """The st_mode of `path`; None if nothing is there. Raises LaunchError if `path` cannot be examined, such
    as a name that is too long or a folder without permission."""
    try:
        return os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise LaunchError(
            f"{name}={value}: cannot be used ({reason_of(error)}). Name another path."
        ) from None


def file(name: str, value: str) -> str:
    path = _absolute(name, value)
    mode = _mode(name, value, path)
    if mode is not None and not stat.S_ISREG(mode):
        raise LaunchError(f"{name}={value}: expected a regular file, or the name of a new one")
    if not os.path.isdir(os.path.dirname(path)):
        raise LaunchError(f"{name}={value}: expected a file in an existing folder. Create the folder first.")
    return path


def profile(name: str, value: str) -> str:
    from spillway import profiles

    profiles.read(value)
    return value
