# SPDX-License-Identifier: Apache-2.0
"""Sets Spillway up in an unchanged program, from the environment variables of settings.JOB."""

from __future__ import annotations

import atexit
import filecmp
import os
import sys

from spillway._load import glue
from spillway._text import printable
from spillway.launch import EMULATOR, SHIM
from spillway.settings import JOB, LaunchError, check_rules, tag_ratios


def wanted() -> dict[str, str]:
    """The settings that are given, by option. Raises LaunchError for an invalid value."""
    given = {setting: os.environ[setting.variable] for setting in JOB if os.environ.get(setting.variable)}
    for setting, value in given.items():
        setting.check(setting.variable, value)
    check_rules(f"{setting.variable}={value}" for setting, value in given.items())
    return {each.option: value for each, value in given.items() if not (each.is_switch and value == "0")}


def start() -> None:
    """Does nothing without settings, or with SPILLWAY_DISABLE=1. Called once, at the end of `import torch`,
    before CUDA has started.

    Prints one line and raises SystemExit if a setting cannot be honored: a job that needs Spillway to fit
    must not run without it. An interpreter that this build does not support runs without Spillway, which one
    line reports: a job may start interpreters other than its own.
    """
    if os.environ.get("SPILLWAY_DISABLE") == "1":
        return
    try:
        given = wanted()
    except LaunchError as error:
        raise SystemExit(_warn(str(error))) from None
    if not given:
        return
    other = _of_another_version()
    if other:
        raise SystemExit(
            _warn(
                f"{other}: is preloaded, but is of another version than the package in {SHIM.parent.parent}. "
                "Use one version of Spillway."
            )
        )

    from spillway import _load

    if not _load.fits_interpreter():
        _warn(
            f"{sys.executable}: runs without Spillway, which was not built for Python {_load.python_tag()}. "
            "Build it for that Python."
        )
        return
    try:
        _load.glue()
    except ImportError as error:
        warned = _warn(str(error))
        if os.environ.get("SPILLWAY_UNSUPPORTED") == "warn":
            return
        raise SystemExit(warned) from None
    _set_up(given)


def _of_another_version() -> str | None:
    """The path of a preloaded Spillway library that differs from this package's. None without /proc."""
    try:
        with open("/proc/self/maps") as maps:
            mapped = {line.rstrip("\n").split(maxsplit=5)[-1] for line in maps if "/libspillway_" in line}
    except OSError:
        return None
    for path in sorted(mapped):
        mine = next((each for each in (SHIM, EMULATOR) if each.name == os.path.basename(path)), None)
        if mine is None or not os.path.exists(path):
            continue
        if not mine.exists() or not filecmp.cmp(path, mine, shallow=False):
            return path
    return None


def _set_up(given: dict[str, str]) -> None:
    from spillway import _saved_in_graphs
    from spillway._higher_order import pass_through
    from spillway.cpu_offload import end_steps_with_optimizers

    try:
        glue().start_job()
        if "tag_ratio" in given:
            from spillway import _named_regions

            _named_regions.start(tag_ratios(given["tag_ratio"]))
    except (RuntimeError, ValueError) as error:
        raise SystemExit(_warn(str(error))) from None
    end_steps_with_optimizers()
    pass_through()
    _saved_in_graphs.start()
    has_budget = "budget" in given or "time_limit" in given
    if "recompute" in given or (has_budget and os.environ.get("SPILLWAY_RECOMPUTE") != "0"):
        from spillway._recompute import prepare_recomputation

        prepare_recomputation()
    if "budget" in given and "keep_model_state" not in given and given.get("allocator") != "torch":
        from spillway import _managed, _unreported_excess

        _managed.manage_everything(given["budget"])
        if given["budget"] != "auto":
            _unreported_excess.start()
    if "plans" in given:
        _keep_plans(given["plans"])
    if "report" in given:
        from spillway import recorder

        recorder.start(
            given["report"], operators="operators" in given, kernels=int(given.get("kernels", "0"))
        )


def _keep_plans(path: str) -> None:
    """Plans the first step by the file, if it is there, and writes what was recorded into it at the end."""
    import torch

    from spillway._plan_file import PlanFile

    # The device that the job makes the current one need not be that yet, when CUDA starts.
    rank = os.environ.get("LOCAL_RANK", "")
    plans = PlanFile(path, "job", int(rank) if rank.isdecimal() else None)

    def begin() -> None:
        try:
            plans.read()
        except ValueError as error:
            raise SystemExit(_warn(str(error))) from None
        atexit.register(plans.write)

    torch.cuda._lazy_call(begin)


def _warn(text: str) -> int:
    """Prints one line to stderr. Returns the exit status of bad usage."""
    print(f"spillway: {printable(text)}", file=sys.stderr)
    return 2
