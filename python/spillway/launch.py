# SPDX-License-Identifier: Apache-2.0
"""The environment that a program needs to run under Spillway. Imports no torch: starting must be quick."""

from __future__ import annotations

import os
import re
import sysconfig
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from spillway.settings import (
    EMULATOR,
    JOB,
    LIBRARIES,
    OF_A_REPORT,
    OF_THE_VIRTUAL_CLOCK,
    OTHERS,
    PROFILE,
    RULED_OUT_IN_A_DRY_RUN,
    SETTINGS,
    LaunchError,
    Setting,
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

_Options = dict[str, Any]

PACKAGE = Path(__file__).absolute().parent
SHIM = LIBRARIES / "libspillway_preload.so"


def check_inherited(env: Mapping[str, str]) -> None:
    """Raises LaunchError for the first SPILLWAY_* variable that is unknown or has an invalid value."""
    known = {**OTHERS, **{setting.variable: setting.check for setting in JOB + SETTINGS}}
    for name, value in sorted(env.items()):
        if not name.startswith("SPILLWAY_"):
            continue
        if name not in known:
            raise LaunchError(f"{name}: unknown setting. Use one of {', '.join(known)}.")
        if value:
            known[name](name, value)


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
    _check_together(env | changes, options)
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

    shape_only = options.get("shape_only") or _is_on(env, _setting("shape_only"))
    clock = options.get("clock") or env.get("SPILLWAY_EMULATE_CLOCK") or ("virtual" if shape_only else "real")
    variables = {setting.option: setting.variable for setting in SETTINGS}
    return {
        option: value
        for option, value in profiles.read(name).settings(clock == "virtual").items()
        if given or not env.get(variables[option])
    }


def _rates_over(profile: str, given: str) -> str:
    """The rates of the profile, overridden by those given."""
    return ",".join({item.partition("=")[0]: item for item in f"{profile},{given}".split(",")}.values())


def _check_against_ratio(
    budget: Setting, env: Mapping[str, str], options: _Options, named: Callable[[Setting], str]
) -> None:
    ratio = _setting("ratio")
    if not (env.get(budget.variable) and env.get(ratio.variable)):
        return
    inherited = [each for each in (budget, ratio) if each.option not in options]
    if len(inherited) != 1:
        raise LaunchError(
            f"{named(budget)}={env[budget.variable]}: cannot be combined with "
            f"{named(ratio)}={env[ratio.variable]}. Use one of them; a budget chooses the share to offload."
        )
    (other,) = inherited
    given = budget if other is ratio else ratio
    raise LaunchError(
        f"{given.flag}={env[given.variable]}: cannot be combined with {other.variable}={env[other.variable]} "
        "of the environment. Unset that variable."
    )


def _check_together(env: Mapping[str, str], options: _Options) -> None:
    """Raises LaunchError for settings that exclude each other, or that need another one."""

    def named(setting: Setting) -> str:
        return setting.flag if setting.option in options else setting.variable

    for option in ("budget", "time_limit"):
        _check_against_ratio(_setting(option), env, options, named)
    plans = _setting("plans")
    if env.get(plans.variable) and not any(
        env.get(_setting(each).variable) for each in ("budget", "time_limit")
    ):
        raise LaunchError(
            f"{named(plans)}={env[plans.variable]}: needs a budget, whose plan it saves. Add --budget or "
            "--time-limit."
        )
    over_budget = _setting("over_budget")
    if env.get(over_budget.variable) and not env.get(_setting("budget").variable):
        raise LaunchError(
            f"{named(over_budget)}={env[over_budget.variable]}: needs a budget that a step can exceed. Add "
            "--budget SIZE."
        )
    for setting in JOB if not env.get("SPILLWAY_REPORT") else ():
        if setting.option in OF_A_REPORT and _is_on(env, setting):
            given = named(setting) if setting.is_switch else f"{named(setting)}={env[setting.variable]}"
            raise LaunchError(f"{given}: needs a report to write to. Add --report DIR.")
    kernels = _setting("kernels")
    if env.get("SPILLWAY_EMULATE") == "1" and env.get(kernels.variable):
        raise LaunchError(
            f"{named(kernels)}={env[kernels.variable]}: needs a GPU; the emulated one has no kernels. "
            f"{'Leave it out' if kernels.option in options else 'Unset it'}."
        )
    clock, assume = map(_setting, ("clock", "assume"))
    dry = _is_on(env, _setting("shape_only"))
    for setting in SETTINGS if dry else ():
        why = RULED_OUT_IN_A_DRY_RUN.get(setting.option)
        if why and (env.get(clock.variable) == "real" if setting is clock else _is_on(env, setting)):
            given = f"{named(setting)}=real" if setting is clock else named(setting)
            raise LaunchError(
                f"{given}: {why}. {'Leave it out' if setting.option in options else 'Unset it'}."
            )
    if not dry and env.get(assume.variable):
        raise LaunchError(f"{named(assume)}={env[assume.variable]}: needs a dry run. Use spillway dry-run.")
    for setting in SETTINGS:
        value = env.get(setting.variable) if setting.option in OF_THE_VIRTUAL_CLOCK else None
        if value and not dry and env.get(clock.variable) != "virtual":
            given = options.get(setting.option, value)
            raise LaunchError(f"{named(setting)}={given}: needs the virtual clock. Add --clock virtual.")


def _setting(option: str) -> Setting:
    return next(each for each in JOB + SETTINGS if each.option == option)


def _is_on(env: Mapping[str, str], switch: Setting) -> bool:
    return env.get(switch.variable, "0") not in ("", "0")


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
