# SPDX-License-Identifier: Apache-2.0
"""The environment that a program needs to run under Spillway. Imports no torch: starting must be quick."""

from __future__ import annotations

import os
import re
import sysconfig
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).absolute().parent
LIBRARIES = PACKAGE / "lib"
SHIM = LIBRARIES / "libspillway_preload.so"
EMULATOR = LIBRARIES / "libspillway_emulator.so"

_SECONDS = {"s": 1, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_UNITS = {"": 0, "B": 0, "KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40}


class LaunchError(ValueError):
    """A value that cannot be used, or a library that is missing. Its text is one line for the user."""


def _choice(*allowed: str) -> Callable[[str, str], str]:
    def check(name: str, value: str) -> str:
        if value not in allowed:
            raise LaunchError(f"{name}={value}: expected one of {', '.join(allowed)}")
        return value

    return check


def _schedule(name: str, value: str) -> str:
    if not re.fullmatch(r"eager|late|shuffled:[0-9]{1,18}", value):
        raise LaunchError(
            f"{name}={value}: expected one of eager, late, shuffled:SEED with a whole number for SEED, "
            "such as shuffled:7"
        )
    return value


def _whole(least: int, most: int) -> Callable[[str, str], str]:
    def check(name: str, value: str) -> str:
        if not re.fullmatch(r"[0-9]{1,18}", value) or not least <= int(value) <= most:
            raise LaunchError(f"{name}={value}: expected a whole number from {least} to {most}")
        return value

    return check


def _size(name: str, value: str) -> str:
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(B|KiB|MiB|GiB|TiB|)", value)
    if found is None or not 0 < float(found[1]) * 2 ** _UNITS[found[2]] < 2**63:
        raise LaunchError(
            f"{name}={value}: expected a size such as 512MiB or 1.5GiB, above 0 and below 2^63 bytes"
        )
    return value


def _duration(name: str, value: str) -> str:
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(s|ms|us|ns)", value)
    if found is None or float(found[1]) * _SECONDS[found[2]] > 3600:
        raise LaunchError(f"{name}={value}: expected a time up to 3600s with its unit, such as 3us or 0.5ms")
    return value


def _fault(name: str, value: str) -> str:
    """Asks the emulator, which alone knows its functions and their errors."""
    if EMULATOR.exists():
        import ctypes

        say = ctypes.CDLL(str(EMULATOR)).spillway_emulator_fault
        say.restype = ctypes.c_char_p
        if (wrong := say(value.encode())) is not None:
            raise LaunchError(f"{name}: {wrong.decode()}")
    return value


def _not_yet(name: str, value: str) -> str:
    raise LaunchError(f"{name}={value}: not available yet; leave it unset")


@dataclass(frozen=True)
class Setting:
    """One setting of the emulated GPU: its option, its variable, and what is allowed."""

    option: str
    variable: str
    check: Callable[[str, str], str]
    help: str

    @property
    def flag(self) -> str:
        return "--" + self.option.replace("_", "-")


SETTINGS = (
    Setting(
        "schedule",
        "SPILLWAY_EMULATE_SCHEDULE",
        _schedule,
        "when asynchronous copies run: eager, late or shuffled:SEED",
    ),
    Setting(
        "check",
        "SPILLWAY_EMULATE_CHECK",
        _choice("0", "1"),
        "report operations that touch the same bytes unordered",
    ),
    Setting("devices", "SPILLWAY_EMULATE_DEVICES", _whole(1, 8), "how many devices there are, 1 to 8"),
    Setting("memory", "SPILLWAY_EMULATE_MEMORY", _size, "memory of each device, such as 8GiB"),
    Setting(
        "rng",
        "SPILLWAY_EMULATE_RNG",
        _choice("philox", "cpu"),
        "random numbers: the CUDA generator's, or a CPU run's",
    ),
    Setting(
        "clock",
        "SPILLWAY_EMULATE_CLOCK",
        _choice("real", "virtual"),
        "what events tell: this machine's time, or a modelled one",
    ),
    Setting(
        "link_h2d",
        "SPILLWAY_EMULATE_LINK_H2D",
        _size,
        "virtual clock: bytes per second to each device, such as 50GiB",
    ),
    Setting("link_d2h", "SPILLWAY_EMULATE_LINK_D2H", _size, "virtual clock: bytes per second back"),
    Setting("latency", "SPILLWAY_EMULATE_LATENCY", _duration, "virtual clock: of each copy, such as 3us"),
    Setting(
        "poison",
        "SPILLWAY_EMULATE_POISON",
        _choice("0", "1"),
        "fill freed and new device memory with a pattern that is no number",
    ),
    Setting(
        "fault",
        "SPILLWAY_EMULATE_FAULT",
        _fault,
        "chosen calls fail: cuMemCreate:3=out_of_memory, with 3+ for all later ones too",
    ),
)

_OF_THE_VIRTUAL_CLOCK = ("link_h2d", "link_d2h", "latency")

# The other settings, with what they may be. What the emulated GPU does not have yet may not be set.
OTHERS: dict[str, Callable[[str, str], str]] = {
    "SPILLWAY_LOG": _choice("0", "1"),
    "SPILLWAY_DISABLE": _choice("0", "1"),
    "SPILLWAY_PINNED_LIMIT": _size,
    "SPILLWAY_NODE_PINNED_LIMIT": _size,
    "SPILLWAY_PLAN_REPLAY": _choice("0", "1"),
    "SPILLWAY_MEMORY_LIMIT": _size,
    "SPILLWAY_EMULATE": _choice("0", "1"),
    "SPILLWAY_EMULATE_REPORTS": lambda _, value: value,
    "SPILLWAY_DEVELOPER": _choice("0", "1"),
    "SPILLWAY_OFFLINE": _choice("0", "1"),
    **dict.fromkeys(
        (f"SPILLWAY_EMULATE_{name}" for name in ("PROFILE", "SHAPE_ONLY")),
        _not_yet,
    ),
}


def _check_inherited(env: Mapping[str, str]) -> None:
    """LaunchError for the first SPILLWAY_* variable that is unknown or has a value that cannot be used."""
    known = {**OTHERS, **{setting.variable: setting.check for setting in SETTINGS}}
    for name, value in sorted(env.items()):
        if not name.startswith("SPILLWAY_"):
            continue
        if name not in known:
            raise LaunchError(f"{name}: unknown setting; known are {', '.join(known)}")
        if value:
            known[name](name, value)


def environment(
    emulate: bool = False,
    *,
    preload: bool = True,
    base: Mapping[str, str] | None = None,
    **options: str | int | bool | None,
) -> dict[str, str]:
    """`base` (default: this process's environment) with all that a program under Spillway needs.

    `preload=False` leaves out the shim. `options` are those of SETTINGS; None leaves a setting as `base`
    has it. The shim comes before the emulator, because a shim behind it would never be called, and both
    before whatever was preloaded already.

    Raises LaunchError for a bad value in `options` or in `base`, and where a library is missing.
    """
    env = dict(os.environ if base is None else base)
    _check_inherited(env)
    ours = [str(SHIM)] * preload + [str(EMULATOR)] * emulate
    changes = {"LD_PRELOAD": _preload(ours, env.get("LD_PRELOAD", ""))}
    unknown = options.keys() - {setting.option for setting in SETTINGS}
    if unknown:
        raise LaunchError(
            f"{min(unknown)}: unknown option; known are {', '.join(s.option for s in SETTINGS)}"
        )
    for setting in SETTINGS:
        value = options.get(setting.option)
        if value is not None:
            if not emulate:
                raise LaunchError(f"{setting.flag} needs --emulate")
            changes[setting.variable] = setting.check(
                setting.flag, str(int(value) if value is True else value)
            )
    for setting in SETTINGS:
        given = setting.option in _OF_THE_VIRTUAL_CLOCK and (env | changes).get(setting.variable)
        if given and (env | changes).get("SPILLWAY_EMULATE_CLOCK") != "virtual":
            raise LaunchError(f"{setting.flag}={given}: needs --clock virtual")
    if emulate:
        changes["SPILLWAY_EMULATE"] = "1"
    tree = str(PACKAGE.parent)
    # An installed package is found without help, and site-packages must not come before the standard library.
    if tree not in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib")):
        rest = [each for each in env.get("PYTHONPATH", "").split(os.pathsep) if each and each != tree]
        changes["PYTHONPATH"] = os.pathsep.join([tree, *rest])
    return env | changes


def _preload(ours: list[str], before: str) -> str:
    for library in ours:
        if not os.path.exists(library):
            raise LaunchError(
                f"{library} is missing: build it with scripts/build, or install the package again"
            )
        if re.search(r"[:\s]", library):
            raise LaunchError(
                f"{library}: LD_PRELOAD cannot hold a path with a colon or a space; move the package"
            )
    others = [each for each in re.split(r"[:\s]+", before) if each and each not in (str(SHIM), str(EMULATOR))]
    return ":".join(ours + others)
