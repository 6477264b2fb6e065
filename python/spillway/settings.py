# SPDX-License-Identifier: Apache-2.0
"""The settings of Spillway: their options, their environment variables, and what they may be."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from spillway._files import reason_of

LIBRARIES = Path(__file__).absolute().parent / "lib"
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


def _budget(name: str, value: str) -> str:
    """A size that a GPU's memory may have: so few bytes are a number whose unit is missing. Or a share, or
    "auto"."""
    if value == "auto":
        return value
    if value.endswith("%"):
        share = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)%", value)
        if share is None or not 0 < float(share[1]) <= 100:
            raise LaunchError(f"{name}={value}: expected a share above 0% and at most 100%, such as 80%")
        return value
    found = re.fullmatch(r"([0-9.]+)([A-Za-z]*)", _size(name, value))
    assert found is not None
    if float(found[1]) * 2 ** _UNITS[found[2]] < 2**20:
        raise LaunchError(
            f"{name}={value}: is less than 1MiB: give a unit, as in 20GiB, or a share, as in 80%"
        )
    return value


def _duration(name: str, value: str) -> str:
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


def _rates(name: str, value: str) -> str:
    for item in value.split(","):
        which, _, number = item.partition("=")
        most = 1e18 if which in _RATES else 1
        fits = re.fullmatch(r"[0-9]+(\.[0-9]+)?(e-?[0-9]+)?", number) and 0 < float(number) <= most
        if which not in RATES or not fits:
            raise LaunchError(
                f"{name}: {item}: expected NAME=NUMBER with a name among {', '.join(_RATES)} (a second, up "
                f"to 1e18), {', '.join(_SHARES)} (shares, up to 1) and {', '.join(_TIMES)} (seconds, up to 1)"
            )
    return value


def _assumptions(name: str, value: str) -> str:
    for item in value.split(","):
        which, _, number = item.partition("=")
        fits = re.fullmatch(r"-?[0-9]+(\.[0-9]+)?(e-?[0-9]+)?", number) or item == "finite"
        share = which in ("nonzero", "unique")
        wrong = not fits or which not in _ASSUMED
        wrong = wrong or (share and not 0 <= float(number) <= 1)
        wrong = wrong or (which == "finite" and item != "finite" and float(number) not in (0, 1))
        if wrong:
            raise LaunchError(
                f"{name}: {item}: expected NAME=NUMBER with a name among nonzero, unique (shares, 0 to 1), "
                "value and finite (0 or 1)"
            )
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


def _ratio(name: str, value: str) -> str:
    if not re.fullmatch(r"[0-9]*\.?[0-9]+", value) or not 0 <= float(value) <= 1:
        raise LaunchError(f"{name}={value}: expected a number from 0 to 1, such as 0.5")
    return value


def _tag_ratios(name: str, value: str) -> str:
    tag_ratios(name, value)
    return value


def tag_ratios(name: str, value: str) -> dict[str, float]:
    """Shares by pattern. Raises LaunchError for text that is not a list such as "mlp=0.8,attn*=0.5"."""
    found: dict[str, float] = {}
    for item in value.split(","):
        pattern, equals, ratio = item.partition("=")
        if not equals or not re.fullmatch(r"[\w.*?/ -]+", pattern):
            raise LaunchError(
                f"{name}={value}: expected PATTERN=SHARE such as 'mlp=0.8', with a pattern of module names"
            )
        _ratio(f"{name}={pattern}", ratio)
        if pattern in found:
            raise LaunchError(f"{name}={value}: {pattern} has two ratios")
        found[pattern] = float(ratio)
    return found


def _folder(name: str, value: str) -> str:
    """An absolute path: programs change their folder."""
    if not value:
        raise LaunchError(f"{name}=: expected a folder")
    folder = _absolute(name, value)
    mode = _mode(name, value, folder)
    if mode is not None and not stat.S_ISDIR(mode):
        raise LaunchError(f"{name}={value}: is a file: name a folder, which is made where it is missing")
    return folder


def _absolute(name: str, value: str) -> str:
    try:
        return str(Path(value).absolute())
    except OSError as error:
        raise LaunchError(
            f"{name}={value}: the working folder cannot be found ({reason_of(error)}): give an absolute path"
        ) from None


def _mode(name: str, value: str, path: str) -> int | None:
    """What is at `path`, as st_mode; None where nothing is. LaunchError where that cannot be found out, as of
    a name that is too long or in a folder that may not be entered."""
    try:
        return os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise LaunchError(f"{name}={value}: {reason_of(error)}") from None


def _time_limit(name: str, value: str) -> str:
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?", value) or not 1 <= float(value) <= 100:
        raise LaunchError(f"{name}={value}: expected a number from 1 to 100, such as 1.05")
    return value


def _plans(name: str, value: str) -> str:
    path = _absolute(name, value)
    mode = _mode(name, value, path)
    if mode is not None and not stat.S_ISREG(mode):
        raise LaunchError(f"{name}={value}: expected a regular file, or a name for one")
    if not os.path.isdir(os.path.dirname(path)):
        raise LaunchError(f"{name}={value}: expected a file in a folder that is there")
    return path


def _profile(name: str, value: str) -> str:
    from spillway import profiles

    profiles.read(value)
    return value


@dataclass(frozen=True)
class Setting:
    """One setting: its option, its variable, and what is allowed."""

    option: str
    variable: str
    check: Callable[[str, str], str]
    help: str
    metavar: str | None = None
    is_switch: bool = False
    repeats: bool = False  # the option may be given several times; the variable separates by commas

    @property
    def flag(self) -> str:
        return "--" + self.option.replace("_", "-")


# What becomes of a job that is not changed for it.
JOB = (
    Setting(
        "budget",
        "SPILLWAY_BUDGET",
        _budget,
        "Keep each GPU within this much memory, such as 20GiB, 80% of it, or auto: what it has.",
        "SIZE",
    ),
    Setting(
        "time_limit",
        "SPILLWAY_TIME_LIMIT",
        _time_limit,
        "Use as little memory as a step can in at most so many times the plain one's time, such as 1.05.",
        "TIMES",
    ),
    Setting(
        "over_budget",
        "SPILLWAY_OVER_BUDGET",
        _choice("error", "warn"),
        "With --budget: whether a step that needs more ends the job (error) or is a warning (warn).",
        "WHAT",
    ),
    Setting(
        "plans",
        "SPILLWAY_PLANS",
        _plans,
        "With --budget or --time-limit: keep what was recorded in FILE, and plan the next run by it.",
        "FILE",
    ),
    Setting(
        "ratio",
        "SPILLWAY_OFFLOAD_RATIO",
        _ratio,
        "Move this share of the saved activations, from 0 to 1.",
        "SHARE",
    ),
    Setting(
        "tag_ratio",
        "SPILLWAY_TAG_RATIO",
        _tag_ratios,
        "Another share inside the modules, or NVTX ranges, whose name fits. May be given several times.",
        "PATTERN=SHARE",
        repeats=True,
    ),
    Setting(
        "recompute",
        "SPILLWAY_RECOMPUTE",
        _choice("0", "1"),
        "Compute cheap activations again instead of keeping them; alone or with any of the above.",
        is_switch=True,
    ),
    Setting(
        "allocator",
        "SPILLWAY_ALLOCATOR",
        _choice("spillway", "torch"),
        "Whose memory PyTorch uses with any of the above; default: spillway.",
        "NAME",
    ),
    Setting("report", "SPILLWAY_REPORT", _folder, "Record what happens, for `spillway report`.", "DIR"),
    Setting(
        "operators",
        "SPILLWAY_REPORT_OPERATORS",
        _choice("0", "1"),
        "With --report: time each operator, too.",
        is_switch=True,
    ),
    Setting(
        "kernels",
        "SPILLWAY_REPORT_KERNELS",
        _whole(1, 1000),
        "With --report: name and time the kernels of so many steps, through CUPTI.",
        "STEPS",
    ),
)

# Those of the emulated GPU.
SETTINGS = (
    Setting(
        "schedule",
        "SPILLWAY_EMULATE_SCHEDULE",
        _schedule,
        "When asynchronous copies run: eager, late or shuffled:SEED.",
        "WHEN",
    ),
    Setting(
        "check",
        "SPILLWAY_EMULATE_CHECK",
        _choice("0", "1"),
        "Report operations that touch the same bytes unordered.",
        is_switch=True,
    ),
    Setting("devices", "SPILLWAY_EMULATE_DEVICES", _whole(1, 8), "How many devices there are, 1 to 8.", "N"),
    Setting("memory", "SPILLWAY_EMULATE_MEMORY", _size, "Memory of each device, such as 8GiB.", "SIZE"),
    Setting(
        "cuda_context",
        "SPILLWAY_EMULATE_CUDA_CONTEXT",
        _size,
        "What of a device's memory CUDA takes for itself, such as 0.5GiB.",
        "SIZE",
    ),
    Setting(
        "capability",
        "SPILLWAY_EMULATE_CAPABILITY",
        _choice(*CAPABILITIES),
        "Compute capability, by which programs choose kernels: 9.0 unless a profile says otherwise.",
        "X.Y",
    ),
    Setting(
        "multiprocessors",
        "SPILLWAY_EMULATE_MULTIPROCESSORS",
        _whole(1, 1024),
        "How many multiprocessors a device has.",
        "N",
    ),
    Setting(
        "rng",
        "SPILLWAY_EMULATE_RNG",
        _choice("philox", "cpu"),
        "Random numbers: the CUDA generator's, or a CPU run's.",
        "WHICH",
    ),
    Setting(
        "clock",
        "SPILLWAY_EMULATE_CLOCK",
        _choice("real", "virtual"),
        "What events tell: this machine's time, or a modelled one.",
        "WHICH",
    ),
    Setting(
        "link_h2d",
        "SPILLWAY_EMULATE_LINK_H2D",
        _size,
        "Virtual clock: bytes per second to each device, such as 50GiB.",
        "SIZE",
    ),
    Setting("link_d2h", "SPILLWAY_EMULATE_LINK_D2H", _size, "Virtual clock: bytes per second back.", "SIZE"),
    Setting(
        "latency", "SPILLWAY_EMULATE_LATENCY", _duration, "Virtual clock: of each copy, such as 3us.", "TIME"
    ),
    Setting(
        "rates",
        "SPILLWAY_EMULATE_RATES",
        _rates,
        "Virtual clock: of each device, such as memory=3.35e12,half=989e12,product=0.75.",
        "NAME=NUMBER,…",
    ),
    Setting(
        "poison",
        "SPILLWAY_EMULATE_POISON",
        _choice("0", "1"),
        "Fill freed and new device memory with a pattern that is no number.",
        is_switch=True,
    ),
    Setting(
        "shape_only",
        "SPILLWAY_EMULATE_SHAPE_ONLY",
        _choice("0", "1"),
        "Dry run: nothing is computed, memory and time are predicted. Implies --clock virtual.",
        is_switch=True,
    ),
    Setting(
        "assume",
        "SPILLWAY_EMULATE_ASSUME",
        _assumptions,
        "Dry run: what values that nobody computes are: finite,nonzero=0.5,unique=0.1,value=1.",
        "NAME=NUMBER,…",
    ),
    Setting(
        "fault",
        "SPILLWAY_EMULATE_FAULT",
        _fault,
        "Chosen calls fail: cuMemCreate:3=out_of_memory, with 3+ for all later ones too.",
        "WHAT",
    ),
)

OF_A_REPORT = ("operators", "kernels")
RULED_OUT_IN_A_DRY_RUN = {  # and why; {} is how --shape-only was given
    "clock": "{} needs the virtual clock",
    "poison": "touches every byte, and {} none",
    "check": "looks at what operators touch, and with {} none does",
}
OF_THE_VIRTUAL_CLOCK = ("link_h2d", "link_d2h", "latency", "rates")

# Of the launcher: what it comes to are the settings above, and no program under it has it.
PROFILE = "SPILLWAY_EMULATE_PROFILE"

# The other settings, with what they may be.
OTHERS: dict[str, Callable[[str, str], str]] = {
    "SPILLWAY_LOG": _choice("0", "1"),
    "SPILLWAY_DISABLE": _choice("0", "1"),
    "SPILLWAY_PINNED_LIMIT": _size,
    "SPILLWAY_NODE_PINNED_LIMIT": _size,
    "SPILLWAY_PLAN_REPLAY": _choice("0", "1"),
    "SPILLWAY_MEMORY_LIMIT": _size,
    "SPILLWAY_UNSUPPORTED": _choice("error", "warn"),
    "SPILLWAY_PRELOAD": _choice("observe", "substitute"),
    "SPILLWAY_PRELOAD_TRACE": lambda _, value: value,
    "SPILLWAY_EMULATE": _choice("0", "1"),
    "SPILLWAY_EMULATE_REPORTS": lambda _, value: value,
    "SPILLWAY_EMULATE_ANSWERS": lambda _, value: value,
    "SPILLWAY_DEVELOPER": _choice("0", "1"),
    "SPILLWAY_OFFLINE": _choice("0", "1"),
    PROFILE: _profile,
}

# What each of them does, for the documentation.
OTHER_HELP: dict[str, str] = {
    "SPILLWAY_LOG": "1: log to stderr what Spillway's libraries do.",
    "SPILLWAY_DISABLE": "1: Spillway does nothing, whatever else is set.",
    "SPILLWAY_PINNED_LIMIT": "Most host memory that one device of a process pins, such as 64GiB.",
    "SPILLWAY_NODE_PINNED_LIMIT": "Most host memory that all processes of a user on a machine pin.",
    "SPILLWAY_PLAN_REPLAY": "1: requests of repeated steps get planned addresses, without a budget too.",
    "SPILLWAY_MEMORY_LIMIT": "Most memory that Spillway's heap reserves on each GPU, such as 20GiB.",
    "SPILLWAY_UNSUPPORTED": "With another torch than the build's: error ends the job, warn trains without.",
    "SPILLWAY_PRELOAD": "observe, or substitute: the preload library serves cudaMalloc from Spillway's heap.",
    "SPILLWAY_PRELOAD_TRACE": "A file to which the preload library writes a trace of CUDA calls.",
    "SPILLWAY_EMULATE": "1: the emulated GPU is in use; set by the launcher.",
    "SPILLWAY_EMULATE_REPORTS": "A file that collects the races of all processes; set by the launcher.",
    "SPILLWAY_EMULATE_ANSWERS": "A folder that collects the figures of a dry run; set by the launcher.",
    "SPILLWAY_DEVELOPER": "Ignored: an option of the build, whose name may be in the environment.",
    "SPILLWAY_OFFLINE": "1: the scripts of the repository fetch nothing.",
    PROFILE: "A profile of the emulated GPU for the launcher, such as h200.",
}
