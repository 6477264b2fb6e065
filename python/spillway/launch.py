# SPDX-License-Identifier: Apache-2.0
"""The environment that a program needs to run under Spillway. Imports no torch: starting must be quick."""

from __future__ import annotations

import os
import re
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spillway.settings import (
    ALL,
    EMULATOR,
    JOB,
    LIBRARIES,
    PROFILE,
    SETTINGS,
    LaunchError,
    check,
    check_rules,
    of_option,
)

__all__ = [
    "EMULATOR",
    "JOB",
    "LIBRARIES",
    "PACKAGE",
    "SETTINGS",
    "SHIM",
    "LaunchError",
    "check_inherited",
    "environment",
]

_Options = dict[str, Any]

PACKAGE = Path(__file__).absolute().parent
SHIM = LIBRARIES / "libspillway_preload.so"


def check_inherited(env: Mapping[str, str]) -> None:
    """Raises LaunchError for the first SPILLWAY_* variable that is unknown or has an invalid value."""
    for name, value in sorted(env.items()):
        if name.startswith("SPILLWAY_") and (value or name not in ALL):
            check(name, name, value)


def environment(
    emulate: bool = False,
    *,
    profile: str | None = None,
    preload: bool = True,
    base: Mapping[str, str] | None = None,
    **options: str | int | bool | None,
) -> dict[str, str]:
    """`base` (default: this process's environment) plus the variables that a program under Spillway needs.

    `preload=False` leaves out the shim. `options` are those of JOB and SETTINGS; None leaves a setting as
    `base` has it. Options take precedence over `profile`, a profile of the emulated GPU (spillway.profiles).
    Variables take precedence over a profile that `base` names. LD_PRELOAD has the shim before the emulator,
    because a shim behind it would never be called, and both before libraries that were preloaded already.

    Raises LaunchError for an invalid value in `options` or in `base`, and if a library is missing.
    """
    env = dict(os.environ if base is None else base)
    check_inherited(env)
    changes = _preloaded([SHIM] * preload + [EMULATOR] * emulate, env)
    unknown = options.keys() - {setting.option for setting in JOB + SETTINGS}
    if unknown:
        raise LaunchError(
            f"{min(unknown)}: unknown option. Use one of {', '.join(s.option for s in JOB + SETTINGS)}."
        )
    options = {name: value for name, value in options.items() if value is not None}
    if emulate:
        of_profile = _of_profile(profile, options, env)
        if "rates" in of_profile and "rates" in options:
            options["rates"] = _rates_over(str(of_profile["rates"]), str(options["rates"]))
        options = of_profile | options
        env.pop(PROFILE, None)
        changes["SPILLWAY_EMULATE"] = "1"
    for setting in JOB + SETTINGS:
        if setting.option not in options:
            continue
        if setting in SETTINGS and not emulate:
            given = setting.flag if setting.is_switch else f"{setting.flag}={options[setting.option]}"
            raise LaunchError(f"{given}: needs the emulated GPU. Add --emulate.")
        value = options[setting.option]
        changes[setting.variable] = setting.check(setting.flag, str(int(value) if value is True else value))
    check_rules(
        f"{ALL[name].shown(ALL[name].option in options)}={value}"
        for name, value in (env | changes).items()
        if name in ALL
    )
    tree = str(PACKAGE.parent)
    # An installed package is found without help, and site-packages must not come before the standard library.
    if tree not in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib")):
        rest = [each for each in env.get("PYTHONPATH", "").split(os.pathsep) if each and each != tree]
        changes["PYTHONPATH"] = os.pathsep.join([tree, *rest])
    return env | changes


def _of_profile(given: str | None, options: _Options, env: Mapping[str, str]) -> _Options:
    """The options that a profile sets."""
    name = given or env.get(PROFILE)
    if not name:
        return {}
    from spillway import profiles

    shape_only = options.get("shape_only") or env.get(of_option("shape_only").variable) == "1"
    clock = options.get("clock") or env.get("SPILLWAY_EMULATE_CLOCK") or ("virtual" if shape_only else "real")
    return {
        option: value
        for option, value in profiles.read(name).settings(clock == "virtual").items()
        if given or not env.get(of_option(option).variable)
    }


def _rates_over(profile: str, given: str) -> str:
    """The rates of the profile, overridden by those given."""
    return ",".join({item.partition("=")[0]: item for item in f"{profile},{given}".split(",")}.values())


def _preloaded(ours: list[Path], env: Mapping[str, str]) -> dict[str, str]:
    """LD_PRELOAD, and LD_LIBRARY_PATH if a path has a space, which LD_PRELOAD cannot contain."""
    for library in ours:
        if not library.exists():
            raise LaunchError(
                f"{library}: is missing. Build it with scripts/build, or reinstall the package."
            )
    names, changes = [str(library) for library in ours], {}
    if re.search(r"[:;]", str(LIBRARIES)):
        raise LaunchError(
            f"{LIBRARIES}: cannot be in LD_PRELOAD, because it contains a colon or a semicolon. Move the "
            "package."
        )
    if re.search(r"\s", str(LIBRARIES)):
        names = [library.name for library in ours]
        rest = [each for each in env.get("LD_LIBRARY_PATH", "").split(":") if each and each != str(LIBRARIES)]
        changes["LD_LIBRARY_PATH"] = ":".join([str(LIBRARIES), *rest])
    mine = {*names, str(SHIM), str(EMULATOR)}
    others = [each for each in re.split(r"[:\s]+", env.get("LD_PRELOAD", "")) if each and each not in mine]
    for other in others:
        if Path(other).name in (SHIM.name, EMULATOR.name):
            raise LaunchError(
                f"{other}: is preloaded, but belongs to another Spillway. Remove it from LD_PRELOAD."
            )
    return {**changes, "LD_PRELOAD": ":".join(names + others)}
