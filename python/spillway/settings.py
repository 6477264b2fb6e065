# SPDX-License-Identifier: Apache-2.0
"""The settings of Spillway: the table of settings.toml, and the checks of values, which C++ makes
(allocator/base/settings.h)."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spillway import _setting_values as launcher
from spillway._files import read_toml
from spillway._setting_values import EMULATOR, LIBRARIES, LaunchError

__all__ = [
    "ALL",
    "CAPABILITIES",
    "EMULATOR",
    "JOB",
    "LIBRARIES",
    "PROFILE",
    "RATES",
    "RULES",
    "SETTINGS",
    "LaunchError",
    "Setting",
    "check",
    "check_rules",
    "needing",
    "of_option",
    "reasons_against",
    "setting_of",
    "size_in_bytes",
    "tag_ratios",
]

TABLE = Path(__file__).absolute().parent / "settings.toml"
_LIBRARY = LIBRARIES / "libspillway_settings.so"
_MOST = 1 << 20  # bytes of the table


@dataclass(frozen=True)
class Range:
    """The type of a value, its choices, and its smallest and largest value as text; "" for none."""

    type: str
    choices: tuple[str, ...] = ()
    least: str = ""
    above: bool = False  # the smallest value itself is excluded
    most: str = ""

    @classmethod
    def of(cls, text: str) -> Range:
        """Of "choice error warn" or "number from 0 to 1"."""
        kind, *words = text.split()
        if kind == "choice":
            return cls(kind, tuple(words))
        limits = dict(zip(words[::2], words[1::2], strict=True))
        least = limits.get("from", limits.get("above", ""))
        return cls(kind, least=least, above="above" in limits, most=limits.get("to", ""))


@dataclass(frozen=True)
class Setting:
    """One setting: a row of the table, which describes the fields."""

    variable: str
    of: str
    group: str
    help: str
    range: Range
    option: str = ""  # of launch.environment
    metavar: str = ""
    commands: tuple[str, ...] = ()
    repeats: bool = False
    parts: tuple[tuple[Range, str, str], ...] = ()  # with names and description
    default: str = ""
    example: str = ""
    advice: str = ""
    starts: bool = False

    @property
    def flag(self) -> str:
        return "--" + self.option.replace("_", "-")

    @property
    def type(self) -> str:
        return self.range.type

    @property
    def is_switch(self) -> bool:
        return self.type == "flag"

    def shown(self, as_option: bool) -> str:
        """The name in errors."""
        return self.flag if as_option and self.commands else self.variable

    def check(self, name: str, value: str) -> str:
        """The text to store in the variable. Errors call the setting `name`. Raises LaunchError."""
        return check(self.variable, name, value)


# What the launcher checks beside the text itself.
_FURTHER: dict[str, Callable[[str, str], str]] = {
    "file": launcher.file,
    "folder": launcher.folder,
    "fault": launcher.fault,
    "profile": launcher.profile,
}


def check(variable: str, name: str, value: str) -> str:
    """As Setting.check, of the setting `variable`, which may be unknown."""
    _raise(_library().spillway_settings_check(_bytes(variable), _bytes(name), *_text(value)))
    further = _FURTHER.get(ALL[variable].type)
    return further(name, value) if further else value


def check_rules(given: Iterable[str]) -> None:
    """Raises LaunchError for settings that exclude each other, or that need another one. `given` are texts
    such as "--budget=20GiB" or "SPILLWAY_BUDGET=20GiB", each setting at most once."""
    texts = [_bytes(each) for each in given]
    array = (ctypes.c_char_p * len(texts))(*texts)
    _raise(_library().spillway_settings_check_rules(array, ctypes.c_size_t(len(texts))))


def size_in_bytes(text: str) -> int | None:
    """The bytes of a size such as "20GiB"; None for another text."""
    size = int(_library().spillway_settings_size(*_text(text)))
    return size if size < 2**63 else None


def setting_of(need: int) -> str:
    """A value of a size setting such as "77GiB": at least `need` bytes, and at most a fiftieth larger."""
    return bytes(_library().spillway_settings_text_of_size(ctypes.c_uint64(need))).decode()


def _raise(error: bytes | None) -> None:
    if error is not None:
        raise LaunchError(error.decode())


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


def _text(text: str) -> tuple[bytes, ctypes.c_size_t]:
    encoded = _bytes(text)
    return encoded, ctypes.c_size_t(len(encoded))


@functools.cache
def _library() -> ctypes.CDLL:
    """It loads no CUDA library, and no other one of Spillway's."""
    if not _LIBRARY.exists():
        raise LaunchError(f"{_LIBRARY}: is missing. Build it with scripts/build, or reinstall the package.")
    library = ctypes.CDLL(str(_LIBRARY))
    library.spillway_settings_check.restype = ctypes.c_char_p
    library.spillway_settings_check_rules.restype = ctypes.c_char_p
    library.spillway_settings_size.restype = ctypes.c_uint64
    library.spillway_settings_text_of_size.restype = ctypes.c_char_p
    return library


_DOCUMENT = read_toml(TABLE, _MOST)
_COMMANDS = {"job": ["run", "env", "emulate", "dry-run"], "emulated": ["emulate", "dry-run"]}


def _settings() -> Iterator[Setting]:
    for section, about in _DOCUMENT["sections"].items():
        for variable, row in _DOCUMENT[section].items():
            flag, _, metavar = row.pop("option", "").partition(" ")
            yield Setting(
                variable,
                about["of"],
                about["title"],
                range=Range.of(row.pop("type")),
                option=flag.removeprefix("--").replace("-", "_"),
                metavar=metavar,
                commands=tuple(row.pop("commands", _COMMANDS[about["of"]] if flag else ())),
                parts=tuple(
                    (Range.of(part["type"]), part["names"], part["description"])
                    for part in row.pop("parts", ())
                ),
                **row,
            )


#: By variable.
ALL = {each.variable: each for each in _settings()}
#: Settings of a job whose script is unchanged.
JOB = tuple(each for each in ALL.values() if each.of == "job")
#: Settings of the emulated GPU, without those that only the launcher sets.
SETTINGS = tuple(each for each in ALL.values() if each.of == "emulated" and each.option)

_BY_OPTION = {each.option: each for each in JOB + SETTINGS}

CAPABILITIES = ALL["SPILLWAY_EMULATE_CAPABILITY"].range.choices
RATES = tuple(" ".join(names for _, names, _ in ALL["SPILLWAY_EMULATE_RATES"].parts).split())
# Read by the launcher only, which sets the settings above from it and removes it.
PROFILE = "SPILLWAY_EMULATE_PROFILE"


#: The settings that exclude or need others, as in the table.
RULES: list[dict[str, Any]] = _DOCUMENT["rules"]


def of_option(option: str) -> Setting:
    return _BY_OPTION[option]


def needing(term: str) -> tuple[str, ...]:
    """The options of the settings that need `term`."""
    found = [rule["settings"] for rule in RULES if term in rule.get("needs", ())]
    return tuple(ALL[variable].option for variables in found for variable in variables)


def reasons_against(term: str) -> dict[str, str]:
    """By option, the reason why it excludes `term`."""
    return {
        ALL[variable.partition("=")[0]].option: rule["because"]
        for rule in RULES
        if term in rule.get("excludes", ()) and "because" in rule
        for variable in rule["settings"]
    }


def tag_ratios(value: str) -> dict[str, float]:
    """Shares by pattern, of a valid SPILLWAY_TAG_RATIO such as "mlp=0.8,attn*=0.5"."""
    items = (item.partition("=") for item in value.split(","))
    return {pattern: float(share) for pattern, _, share in items}
