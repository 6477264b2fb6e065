# SPDX-License-Identifier: Apache-2.0
"""The settings of Spillway: their options, environment variables and allowed values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from spillway import _setting_values as checks
from spillway._setting_values import CAPABILITIES, EMULATOR, LIBRARIES, RATES, LaunchError, tag_ratios

__all__ = [
    "CAPABILITIES",
    "EMULATOR",
    "JOB",
    "LIBRARIES",
    "OF_A_REPORT",
    "OF_THE_VIRTUAL_CLOCK",
    "OTHERS",
    "PROFILE",
    "RATES",
    "RULED_OUT_IN_A_DRY_RUN",
    "SETTINGS",
    "LaunchError",
    "Setting",
    "tag_ratios",
]


@dataclass(frozen=True)
class Setting:
    """One setting: its option, its variable, and the check of its value."""

    option: str
    variable: str
    check: Callable[[str, str], str]
    group: str  # the heading of the option in the help
    help: str  # one line beside the option in 80 columns
    metavar: str | None = None
    is_switch: bool = False
    repeats: bool = False  # the option may be given several times; the variable separates by commas

    @property
    def flag(self) -> str:
        return "--" + self.option.replace("_", "-")


_MEMORY, _REPORT = "Memory", "Report"
_GPU, _CLOCK, _DEBUGGING, _DRY_RUN = "Emulated GPU", "Virtual clock", "Debugging", "Dry run"

# Settings of a job whose script is unchanged.
JOB = (
    Setting(
        "budget",
        "SPILLWAY_BUDGET",
        checks.budget,
        _MEMORY,
        "Keep each GPU within SIZE: 20GiB, 80%, or auto.",
        "SIZE",
    ),
    Setting(
        "time_limit",
        "SPILLWAY_TIME_LIMIT",
        checks.time_limit,
        _MEMORY,
        "Minimize memory within TIMES the plain step's time.",
        "TIMES",
    ),
    Setting(
        "over_budget",
        "SPILLWAY_OVER_BUDGET",
        checks.choice("error", "warn"),
        _MEMORY,
        "If a step exceeds --budget: error (default), warn.",
        "ACTION",
    ),
    Setting(
        "plans",
        "SPILLWAY_PLANS",
        checks.plans,
        _MEMORY,
        "Save the plan to FILE; start the next run from it.",
        "FILE",
    ),
    Setting(
        "ratio",
        "SPILLWAY_OFFLOAD_RATIO",
        checks.ratio,
        _MEMORY,
        "Offload this share of saved activations, 0 to 1.",
        "SHARE",
    ),
    Setting(
        "tag_ratio",
        "SPILLWAY_TAG_RATIO",
        checks.checked_tag_ratios,
        _MEMORY,
        "Another share for modules, NVTX ranges; repeatable.",
        "NAME=SHARE",
        repeats=True,
    ),
    Setting(
        "recompute",
        "SPILLWAY_RECOMPUTE",
        checks.choice("0", "1"),
        _MEMORY,
        "Recompute cheap activations instead of saving them.",
        is_switch=True,
    ),
    Setting(
        "allocator",
        "SPILLWAY_ALLOCATOR",
        checks.choice("spillway", "torch"),
        _MEMORY,
        "Memory allocator: spillway (default) or torch.",
        "NAME",
    ),
    Setting(
        "report",
        "SPILLWAY_REPORT",
        checks.folder,
        _REPORT,
        "Record the run in DIR, for spillway report.",
        "DIR",
    ),
    Setting(
        "operators",
        "SPILLWAY_REPORT_OPERATORS",
        checks.choice("0", "1"),
        _REPORT,
        "With --report: time each operator.",
        is_switch=True,
    ),
    Setting(
        "kernels",
        "SPILLWAY_REPORT_KERNELS",
        checks.integer(1, 1000),
        _REPORT,
        "With --report: time kernels for N steps (CUPTI).",
        "N",
    ),
)

# Settings of the emulated GPU.
SETTINGS = (
    Setting(
        "devices",
        "SPILLWAY_EMULATE_DEVICES",
        checks.integer(1, 8),
        _GPU,
        "Number of GPUs, 1 to 8.",
        "N",
    ),
    Setting(
        "memory",
        "SPILLWAY_EMULATE_MEMORY",
        checks.gpu_memory,
        _GPU,
        "Memory of each GPU, such as 8GiB.",
        "SIZE",
    ),
    Setting(
        "cuda_context",
        "SPILLWAY_EMULATE_CUDA_CONTEXT",
        checks.size,
        _GPU,
        "Memory of the CUDA context, such as 0.5GiB.",
        "SIZE",
    ),
    Setting(
        "capability",
        "SPILLWAY_EMULATE_CAPABILITY",
        checks.choice(*CAPABILITIES),
        _GPU,
        "Compute capability; default: the profile's, or 9.0.",
        "X.Y",
    ),
    Setting(
        "multiprocessors",
        "SPILLWAY_EMULATE_MULTIPROCESSORS",
        checks.integer(1, 1024),
        _GPU,
        "Number of streaming multiprocessors.",
        "N",
    ),
    Setting(
        "fault",
        "SPILLWAY_EMULATE_FAULT",
        checks.fault,
        _GPU,
        "Let a call fail: cuMemCreate:3=out_of_memory.",
        "CALL:N=ERROR",
    ),
    Setting(
        "clock",
        "SPILLWAY_EMULATE_CLOCK",
        checks.choice("real", "virtual"),
        _CLOCK,
        "Time of events: real, or virtual (modeled).",
        "CLOCK",
    ),
    Setting(
        "link_h2d",
        "SPILLWAY_EMULATE_LINK_H2D",
        checks.rate,
        _CLOCK,
        "Bandwidth to each GPU, such as 55GB/s.",
        "RATE",
    ),
    Setting(
        "link_d2h",
        "SPILLWAY_EMULATE_LINK_D2H",
        checks.rate,
        _CLOCK,
        "Bandwidth from each GPU.",
        "RATE",
    ),
    Setting(
        "latency",
        "SPILLWAY_EMULATE_LATENCY",
        checks.duration,
        _CLOCK,
        "Latency of each copy, such as 3us.",
        "TIME",
    ),
    Setting(
        "rates",
        "SPILLWAY_EMULATE_RATES",
        checks.rates,
        _CLOCK,
        "Throughput: memory=3.35e12,half=989e12,product=0.75.",
        "NAME=NUMBER,…",
    ),
    Setting(
        "schedule",
        "SPILLWAY_EMULATE_SCHEDULE",
        checks.schedule,
        _DEBUGGING,
        "When async copies run: eager, late, shuffled:SEED.",
        "WHEN",
    ),
    Setting(
        "check",
        "SPILLWAY_EMULATE_CHECK",
        checks.choice("0", "1"),
        _DEBUGGING,
        "Report races; exit status 3 if there are any.",
        is_switch=True,
    ),
    Setting(
        "poison",
        "SPILLWAY_EMULATE_POISON",
        checks.choice("0", "1"),
        _DEBUGGING,
        "Fill new and freed device memory with NaN.",
        is_switch=True,
    ),
    Setting(
        "rng",
        "SPILLWAY_EMULATE_RNG",
        checks.choice("philox", "cpu"),
        _DEBUGGING,
        "Random numbers: philox (as on a GPU) or cpu.",
        "GENERATOR",
    ),
    Setting(
        "shape_only",  # the command dry-run sets it: no command has the option
        "SPILLWAY_EMULATE_SHAPE_ONLY",
        checks.choice("0", "1"),
        _DRY_RUN,
        "Predict memory and time without arithmetic.",
        is_switch=True,
    ),
    Setting(
        "assume",
        "SPILLWAY_EMULATE_ASSUME",
        checks.assumptions,
        _DRY_RUN,
        "Values to assume: finite,nonzero=0.5,unique=0.1.",
        "NAME=NUMBER,…",
    ),
)

OF_A_REPORT = ("operators", "kernels")
RULED_OUT_IN_A_DRY_RUN = {  # and why
    "clock": "does not apply to a dry run, which needs the virtual clock",
    "poison": "does not apply to a dry run, which has no device memory to fill",
    "check": "does not apply to a dry run, which accesses no device memory",
}
OF_THE_VIRTUAL_CLOCK = ("link_h2d", "link_d2h", "latency", "rates")

# Read by the launcher only, which sets the settings above from it and removes it.
PROFILE = "SPILLWAY_EMULATE_PROFILE"

# The other settings, with their checks.
OTHERS: dict[str, Callable[[str, str], str]] = {
    "SPILLWAY_LOG": checks.choice("0", "1"),
    "SPILLWAY_DISABLE": checks.choice("0", "1"),
    "SPILLWAY_PINNED_LIMIT": checks.size,
    "SPILLWAY_NODE_PINNED_LIMIT": checks.size,
    "SPILLWAY_PLAN_REPLAY": checks.choice("0", "1"),
    "SPILLWAY_MEMORY_LIMIT": checks.size,
    "SPILLWAY_UNSUPPORTED": checks.choice("error", "warn"),
    "SPILLWAY_PRELOAD": checks.choice("observe", "substitute"),
    "SPILLWAY_PRELOAD_TRACE": lambda _, value: value,
    "SPILLWAY_EMULATE": checks.choice("0", "1"),
    "SPILLWAY_EMULATE_REPORTS": lambda _, value: value,
    "SPILLWAY_EMULATE_ANSWERS": lambda _, value: value,
    "SPILLWAY_DEVELOPER": checks.choice("0", "1"),
    "SPILLWAY_OFFLINE": checks.choice("0", "1"),
    PROFILE: checks.profile,
}

# What each of them does, for the documentation.
OTHER_HELP: dict[str, str] = {
    "SPILLWAY_LOG": "1: log to stderr what Spillway's libraries do.",
    "SPILLWAY_DISABLE": "1: Spillway does nothing, whatever else is set.",
    "SPILLWAY_PINNED_LIMIT": "Maximum pinned host memory for one device of a process, such as 64GiB.",
    "SPILLWAY_NODE_PINNED_LIMIT": "Maximum pinned host memory of all processes of a user on a machine.",
    "SPILLWAY_PLAN_REPLAY": "1: allocations of repeated steps get planned addresses, even without a budget.",
    "SPILLWAY_MEMORY_LIMIT": "Maximum memory that Spillway's heap reserves on each GPU, such as 20GiB.",
    "SPILLWAY_UNSUPPORTED": "If torch is not the build's: error ends the job, warn runs without Spillway.",
    "SPILLWAY_PRELOAD": "observe: count CUDA calls. substitute: serve cudaMalloc from Spillway's heap.",
    "SPILLWAY_PRELOAD_TRACE": "A file to which the preload library writes a trace of CUDA calls.",
    "SPILLWAY_EMULATE": "1: the emulated GPU is in use; set by the launcher.",
    "SPILLWAY_EMULATE_REPORTS": "A file that collects the races of all processes; set by the launcher.",
    "SPILLWAY_EMULATE_ANSWERS": "A folder that collects the figures of a dry run; set by the launcher.",
    "SPILLWAY_DEVELOPER": "Ignored at run time: an option of the build.",
    "SPILLWAY_OFFLINE": "1: the scripts of the repository fetch nothing.",
    PROFILE: "A profile of the emulated GPU for the launcher, such as h200.",
}
