# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Level(str, Enum):
    OK = "ok"
    WARNING = "warning"  # it works, but not as well as it could
    PROBLEM = "problem"  # something that Spillway does will not work


@dataclass(frozen=True)
class Finding:
    what: str
    level: Level
    text: str
    advice: str = ""  # what to do about it; given for all but OK


def ok(what: str, text: str) -> Finding:
    return Finding(what, Level.OK, text)


def warning(what: str, text: str, advice: str) -> Finding:
    return Finding(what, Level.WARNING, text, advice)


def problem(what: str, text: str, advice: str) -> Finding:
    return Finding(what, Level.PROBLEM, text, advice)
