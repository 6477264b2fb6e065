# SPDX-License-Identifier: Apache-2.0
"""The options that `run` and `env` share, and the environment that they come to."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import click

from spillway import launch
from spillway.settings import JOB, SETTINGS, Setting

_Command = TypeVar("_Command", bound=Callable[..., Any])


def shared(command: _Command) -> _Command:
    """Adds them: `emulate`, and one argument for each setting."""
    command = emulation(*(setting.option for setting in SETTINGS))(command)
    for setting in reversed(JOB):
        command = _option(setting)(command)
    return command


def emulation(*names: str) -> Callable[[_Command], _Command]:
    """Adds `emulate` and these settings of the emulated GPU."""

    def add(command: _Command) -> _Command:
        for setting in reversed(SETTINGS):
            if setting.option in names:
                command = _option(setting)(command)
        return click.option("--emulate", is_flag=True, help="Run on the emulated GPU: needs no GPU.")(command)

    return add


def _option(setting: Setting) -> Callable[[_Command], _Command]:
    if setting.is_switch:
        return click.option(setting.flag, setting.option, is_flag=True, default=None, help=setting.help)
    return click.option(
        setting.flag,
        setting.option,
        help=setting.help,
        multiple=setting.repeats,
        metavar=setting.metavar,
    )


def environment(emulate: bool, **values: Any) -> dict[str, str]:
    """The environment. Raises LaunchError for a value that cannot be used."""
    given = {
        name: ",".join(value) or None if isinstance(value, tuple) else value for name, value in values.items()
    }
    return launch.environment(emulate or os.environ.get("SPILLWAY_EMULATE") == "1", **given)
