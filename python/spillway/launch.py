# SPDX-License-Identifier: Apache-2.0
"""The environment that a program needs to run under Spillway. Imports no torch: starting must be quick."""

from __future__ import annotations

import os
import re
import sysconfig
from collections.abc import Mapping
from pathlib import Path

from spillway.settings import (
    EMULATOR,
    JOB,
    LIBRARIES,
    OF_A_REPORT,
    OF_THE_VIRTUAL_CLOCK,
    OTHERS,
    SETTINGS,
    LaunchError,
)

__all__ = [
    "EMULATOR",
    "JOB",
    "LIBRARIES",
    "OTHERS",
    "PACKAGE",
    "SETTINGS",
    "SHIM",
    "LaunchError",
    "check_inherited",
    "environment",
]

PACKAGE = Path(__file__).absolute().parent
SHIM = LIBRARIES / "libspillway_preload.so"


def check_inherited(env: Mapping[str, str]) -> None:
    """LaunchError for the first SPILLWAY_* variable that is unknown or has a value that cannot be used."""
    known = {**OTHERS, **{setting.variable: setting.check for setting in JOB + SETTINGS}}
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

    `preload=False` leaves out the shim. `options` are those of JOB and SETTINGS; None leaves a setting as
    `base` has it. The shim comes before the emulator, because a shim behind it would never be called, and
    both before whatever was preloaded already.

    Raises LaunchError for a bad value in `options` or in `base`, and where a library is missing.
    """
    env = dict(os.environ if base is None else base)
    check_inherited(env)
    changes = _preloaded([SHIM] * preload + [EMULATOR] * emulate, env)
    unknown = options.keys() - {setting.option for setting in JOB + SETTINGS}
    if unknown:
        raise LaunchError(
            f"{min(unknown)}: unknown option; known are {', '.join(s.option for s in JOB + SETTINGS)}"
        )
    for setting in JOB:
        value = options.get(setting.option)
        if value is not None:
            value = int(value) if value is True else value
            changes[setting.variable] = setting.check(setting.flag, str(value))
    given = env | changes
    if not given.get("SPILLWAY_REPORT"):
        for setting in JOB:
            if setting.option in OF_A_REPORT and given.get(setting.variable, "0") not in ("", "0"):
                raise LaunchError(f"{setting.flag}: needs --report DIR, which says where to write them")
    if given.get("SPILLWAY_BUDGET") and given.get("SPILLWAY_OFFLOAD_RATIO"):
        raise LaunchError("--budget and --ratio: give one of them; a budget moves as much as it takes")
    for setting in SETTINGS:
        value = options.get(setting.option)
        if value is not None:
            if not emulate:
                raise LaunchError(f"{setting.flag} needs --emulate")
            changes[setting.variable] = setting.check(
                setting.flag, str(int(value) if value is True else value)
            )
    for setting in SETTINGS:
        given = setting.option in OF_THE_VIRTUAL_CLOCK and (env | changes).get(setting.variable)
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


def _preloaded(ours: list[Path], env: Mapping[str, str]) -> dict[str, str]:
    """LD_PRELOAD, and LD_LIBRARY_PATH where a path has a space, which LD_PRELOAD cannot hold."""
    for library in ours:
        if not library.exists():
            raise LaunchError(
                f"{library} is missing: build it with scripts/build, or install the package again"
            )
    names, changes = [str(library) for library in ours], {}
    if re.search(r"[:;]", str(LIBRARIES)):
        raise LaunchError(
            f"{LIBRARIES}: a path to preload cannot have a colon or a semicolon; move the package"
        )
    if re.search(r"\s", str(LIBRARIES)):
        names = [library.name for library in ours]
        rest = [each for each in env.get("LD_LIBRARY_PATH", "").split(":") if each and each != str(LIBRARIES)]
        changes["LD_LIBRARY_PATH"] = ":".join([str(LIBRARIES), *rest])
    mine = {*names, str(SHIM), str(EMULATOR)}
    others = [each for each in re.split(r"[:\s]+", env.get("LD_PRELOAD", "")) if each and each not in mine]
    for other in others:
        if Path(other).name in (SHIM.name, EMULATOR.name):
            raise LaunchError(f"{other} is preloaded already, of another Spillway: take it out of LD_PRELOAD")
    return {**changes, "LD_PRELOAD": ":".join(names + others)}
