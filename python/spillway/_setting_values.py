# SPDX-License-Identifier: Apache-2.0
"""Checks of setting values. Each check takes the name of the option or variable and its text, and returns the
text to store in the variable, or raises LaunchError."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

from spillway._files import reason_of

LIBRARIES = Path(__file__).absolute().parent / "lib"
EMULATOR = LIBRARIES / "libspillway_emulator.so"

_SECONDS = {"s": 1, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_DECIMAL_UNITS = ("B", "KB", "MB", "GB", "TB")
_UNITS = {"": 0, "B": 0, "KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40}


class LaunchError(ValueError):
    """An invalid value, or a missing library. The message is one line for the user."""


def choice(*allowed: str) -> Callable[[str, str], str]:
    def check(name: str, value: str) -> str:
        if value not in allowed:
            raise LaunchError(f"{name}={value}: expected one of {', '.join(allowed)}")
        return value

    return check


def schedule(name: str, value: str) -> str:
    if not re.fullmatch(r"eager|late|shuffled:[0-9]{1,18}", value):
        raise LaunchError(
            f"{name}={value}: expected one of eager, late, shuffled:SEED with an integer for SEED, "
            "such as shuffled:7"
        )
    return value


def integer(least: int, most: int) -> Callable[[str, str], str]:
    def check(name: str, value: str) -> str:
        if not re.fullmatch(r"[0-9]{1,18}", value) or not least <= int(value) <= most:
            raise LaunchError(f"{name}={value}: expected an integer from {least} to {most}")
        return value

    return check


def size(name: str, value: str) -> str:
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(B|KiB|MiB|GiB|TiB|)", value)
    if found is None or not 0 < float(found[1]) * 2 ** _UNITS[found[2]] < 2**63:
        raise LaunchError(
            f"{name}={value}: expected a size such as 512MiB or 1.5GiB, above 0 and below 2^63 bytes"
        )
    return value


def _bytes(value: str) -> float:
    """Of text that size() has accepted."""
    unit = value.lstrip("0123456789.")
    return float(value.removesuffix(unit)) * float(2 ** _UNITS[unit])


def gpu_memory(name: str, value: str) -> str:
    if _bytes(size(name, value)) < 2 << 20:
        raise LaunchError(f"{name}={value}: expected at least 2MiB, such as 8GiB")
    return value


def rate(name: str, value: str) -> str:
    """Bytes per second. Variables have no units of rates: the emulator reads them as sizes."""
    is_option = name.startswith("--")
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([KMGT]B)/s", value) if is_option else None
    bytes_per_second = value
    if found is not None:
        bytes_per_second = str(int(Decimal(found[1]) * 1000 ** _DECIMAL_UNITS.index(found[2])))
    try:
        return size(name, bytes_per_second)
    except LaunchError:
        such = "a rate such as 55GB/s" if is_option else "bytes per second, such as 50GiB"
        raise LaunchError(f"{name}={value}: expected {such}") from None


def budget(name: str, value: str) -> str:
    """A size of at least 1 MiB (a smaller number lacks its unit), a share, or "auto"."""
    if value == "auto":
        return value
    if value.endswith("%"):
        share = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)%", value)
        if share is None or not 0 < float(share[1]) <= 100:
            raise LaunchError(f"{name}={value}: expected a share above 0% and at most 100%, such as 80%")
        return value
    try:
        size(name, value)
    except LaunchError:
        raise LaunchError(
            f"{name}={value}: expected a size such as 20GiB, a share such as 80%, or auto"
        ) from None
    if _bytes(value) < 2**20:
        raise LaunchError(
            f"{name}={value}: expected at least 1MiB. Add a unit, as in 20GiB, or give a share, as in 80%."
        )
    return value


def duration(name: str, value: str) -> str:
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(s|ms|us|ns)", value)
    if found is None or float(found[1]) * _SECONDS[found[2]] > 3600:
        raise LaunchError(f"{name}={value}: expected a time up to 3600s with its unit, such as 3us or 0.5ms")
    return value


CAPABILITIES = ("7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "12.0")
_RATES = ("memory", "half", "tf32", "single", "double", "fp8", "int8", "peers", "pageable")
_ASSUMED = ("nonzero", "unique", "value", "finite")
_SHARES = ("product", "attention", "attention_backward", "duplex")
_TIMES = ("kernel", "launch", "call", "hop")
RATES = _RATES + _SHARES + _TIMES


def rates(name: str, value: str) -> str:
    for item in value.split(","):
        which, _, number = item.partition("=")
        most = 1e18 if which in _RATES else 1
        fits = re.fullmatch(r"[0-9]+(\.[0-9]+)?(e-?[0-9]+)?", number) and 0 < float(number) <= most
        if which not in RATES or not fits:
            raise LaunchError(
                f"{name}={item}: expected NAME=NUMBER, where NAME is {', '.join(_RATES)} (per second, up to "
                f"1e18), {', '.join(_SHARES)} (a share, up to 1) or {', '.join(_TIMES)} (seconds, up to 1)"
            )
    return value


def assumptions(name: str, value: str) -> str:
    for item in value.split(","):
        which, _, number = item.partition("=")
        fits = re.fullmatch(r"-?[0-9]+(\.[0-9]+)?(e-?[0-9]+)?", number) or item == "finite"
        share = which in ("nonzero", "unique")
        wrong = not fits or which not in _ASSUMED
        wrong = wrong or (share and not 0 <= float(number) <= 1)
        wrong = wrong or (which == "finite" and item != "finite" and float(number) not in (0, 1))
        if wrong:
            raise LaunchError(
                f"{name}={item}: expected NAME=NUMBER, where NAME is nonzero or unique (a share, 0 to 1), "
                "value, or finite (0 or 1)"
            )
    return value


def fault(name: str, value: str) -> str:
    """Asks the emulator, which has the list of functions and errors."""
    if EMULATOR.exists():
        import ctypes

        say = ctypes.CDLL(str(EMULATOR)).spillway_emulator_fault
        say.restype = ctypes.c_char_p
        if (wrong := say(value.encode())) is not None:
            reason = wrong.decode()
            item = re.match(r'fault "(.*?)": ', reason)
            subject = f"{name}={item[1] if item else value}"
            raise LaunchError(f"{subject}: {reason[item.end() if item else 0 :]}")
    return value


def ratio(name: str, value: str) -> str:
    if not re.fullmatch(r"[0-9]*\.?[0-9]+", value) or not 0 <= float(value) <= 1:
        raise LaunchError(f"{name}={value}: expected a number from 0 to 1, such as 0.5")
    return value


def checked_tag_ratios(name: str, value: str) -> str:
    tag_ratios(name, value)
    return value


def tag_ratios(name: str, value: str) -> dict[str, float]:
    """Shares by pattern. Raises LaunchError for text that is not a list such as "mlp=0.8,attn*=0.5"."""
    found: dict[str, float] = {}
    for item in value.split(","):
        pattern, equals, share = item.partition("=")
        if not equals or not re.fullmatch(r"[\w.*?/ -]+", pattern):
            raise LaunchError(
                f"{name}={value}: expected PATTERN=SHARE, such as mlp=0.8; PATTERN fits names of modules"
            )
        ratio(f"{name}={pattern}", share)
        if pattern in found:
            raise LaunchError(f"{name}={value}: gives {pattern} two ratios. Remove one.")
        found[pattern] = float(share)
    return found


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


def time_limit(name: str, value: str) -> str:
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?", value) or not 1 <= float(value) <= 100:
        raise LaunchError(f"{name}={value}: expected a number from 1 to 100, such as 1.05")
    return value


def plans(name: str, value: str) -> str:
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
