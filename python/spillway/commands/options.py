# SPDX-License-Identifier: Apache-2.0
"""Options of the settings, and the environment that their values give."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from spillway import launch, profiles
from spillway.commands.help import Option
from spillway.settings import JOB, SETTINGS, Setting

_Command = TypeVar("_Command", bound=Callable[..., Any])
EMULATED = tuple(each.option for each in SETTINGS if "emulate" in each.commands)
OF_JOBS = frozenset(each.group for each in JOB)  # headings of the help
DRY_RUN = tuple(each.option for each in SETTINGS if "dry-run" in each.commands)


def job(command: _Command) -> _Command:
    """Adds one option for each setting of a job."""
    return _added(command, JOB)


def emulated_gpu(*names: str) -> Callable[[_Command], _Command]:
    """Adds one option for each of these settings of the emulated GPU."""
    return lambda command: _added(command, [each for each in SETTINGS if each.option in names])


def _added(command: _Command, settings: Sequence[Setting]) -> _Command:
    for setting in reversed(settings):
        command = _option(setting)(command)
    return command


def _option(setting: Setting) -> Callable[[_Command], _Command]:
    kind: dict[str, Any] = {"is_flag": True, "default": None} if setting.is_switch else {}
    return click.option(
        setting.flag,
        setting.option,
        cls=Option,
        group=setting.group,
        help=setting.help,
        multiple=setting.repeats,
        metavar=setting.metavar,
        **kind,
    )


def complete_profile(_: click.Context, __: click.Parameter, begun: str) -> list[CompletionItem]:
    """Profiles that begin so; otherwise files, since a user's own profile is a file."""
    found = [CompletionItem(name) for name in profiles.names() if name.startswith(begun)]
    return found or complete_file(_, __, begun)


def complete_file(_: click.Context, __: click.Parameter, begun: str) -> list[CompletionItem]:
    """The shell's own completion."""
    return [CompletionItem(begun, type="file")]


def environment(
    emulate: bool = False, profile: str | None = None, preload: bool = True, **values: Any
) -> dict[str, str]:
    """This process's environment, changed by the options. Raises LaunchError for an unusable value."""
    given: dict[str, Any] = {
        name: (",".join(value) if value else None) if isinstance(value, tuple) else value
        for name, value in values.items()
    }
    emulated = emulate or os.environ.get("SPILLWAY_EMULATE") == "1"
    return launch.environment(emulated, profile=profile, preload=preload, **given)
