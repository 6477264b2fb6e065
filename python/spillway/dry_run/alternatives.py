# SPDX-License-Identifier: Apache-2.0
"""Ways to run one program that can be compared. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spillway.settings import JOB, LaunchError

__all__ = ["Alternative", "parse"]

_PLAIN = ("plain", "checkpoint", "recompute")
_MOVING = {setting.option: setting for setting in JOB if setting.option in ("ratio", "budget")}
# What would hold for all of them, or be written by all of them to one file.
_CONFLICTING = tuple(each for each in JOB if each.option not in ("allocator", "operators", "kernels"))


@dataclass(frozen=True)
class Alternative:
    name: str
    changes: dict[str, str] = field(default_factory=dict)  # to the environment
    checkpoint: bool = False  # each layer of the model (layers.py)


def parse(text: str, env: Mapping[str, str], option: str = "--compare") -> list[Alternative]:
    """The alternatives of "plain,checkpoint,ratio=0.5", given by that option, for a program with this
    environment. Raises LaunchError."""
    for setting in _CONFLICTING:
        if env.get(setting.variable):
            given = f"{setting.flag} ({setting.variable}={env[setting.variable]})"
            instead = f", or compare {setting.option}=VALUE" if setting.option in _MOVING else ""
            raise LaunchError(f"{option}={text}: cannot be combined with {given}. Leave one out{instead}.")
    found = [_alternative(item, option) for item in text.split(",")]
    names = [each.name for each in found]
    for name in names:
        if names.count(name) > 1:
            raise LaunchError(f"{option}={text}: names {name} twice. Remove one.")
    return found


def _alternative(item: str, option: str) -> Alternative:
    name, equals, value = item.partition("=")
    if not equals and name in _PLAIN:
        changes = {"SPILLWAY_RECOMPUTE": "1"} if name == "recompute" else {}
        return Alternative(item, changes, checkpoint=name == "checkpoint")
    if not equals or name not in _MOVING:
        raise LaunchError(
            f"{option}={item}: expected plain, checkpoint, recompute, ratio=SHARE or budget=SIZE, "
            "separated by commas"
        )
    setting = _MOVING[name]
    return Alternative(item, {setting.variable: setting.check(f"{option}={name}", value)})
