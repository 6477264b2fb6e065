# SPDX-License-Identifier: Apache-2.0
"""Profiles of GPUs: what the emulated one takes from a real one. Each is a TOML file; a user can give one."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from spillway._files import read_toml, reason_of
from spillway.settings import RATES, SETTINGS, LaunchError, needing

__all__ = ["Profile", "is_profile", "names", "read"]

FOLDER = Path(__file__).absolute().parent
_MOST = 1 << 20  # bytes of a file


@dataclass(frozen=True)
class Profile:
    """A file has all of these, but it may leave out the last four: the emulated GPU has its own then. With
    `like`, the name of a profile here, it may leave out any: they are that one's then, each rate too. Rates
    may leave out the costs of calls that map memory.

    But for the name they are settings of the emulated GPU, with their values.
    """

    name: str
    memory: str
    link_h2d: str
    link_d2h: str
    latency: str
    cuda_context: str | None = None
    capability: str | None = None
    multiprocessors: str | None = None
    rates: str | None = None  # in the file a table

    def settings(self, virtual_clock: bool) -> dict[str, str]:
        """By option. Those of the link belong to the virtual clock."""
        options = [field.name for field in fields(self) if field.name != "name"]
        of_the_clock = needing("SPILLWAY_EMULATE_CLOCK=virtual")
        return {
            option: getattr(self, option)
            for option in options
            if getattr(self, option) is not None and (virtual_clock or option not in of_the_clock)
        }


_OPTIONAL = ("cuda_context", "capability", "multiprocessors", "rates")
# What calls that map memory cost where a table of rates leaves it out: measured on an A100 (arXiv 2405.04437,
# 2401.08156).
_MAPPING = {
    "create": 29e-6,
    "map": 2e-6,
    "access": 38e-6,
    "unmap": 34e-6,
    "release": 23e-6,
    "create_rate": 2.7e12,
    "release_rate": 2.7e12,
}


def names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def is_profile(text: str) -> bool:
    """Whether `text` is the name of a profile or of a TOML file."""
    return text.endswith(".toml") or text in names()


def read(given: str) -> Profile:
    """The profile of a name, or of a file whose name ends in .toml. Raises LaunchError."""
    if not is_profile(given):
        raise LaunchError(
            f"{given or repr(given)}: unknown profile. Use one of {', '.join(names())}, "
            "or a file that ends in .toml."
        )
    found = _load(given)
    if "like" in found:
        base = found.pop("like")
        if base not in names():
            raise LaunchError(f"{given}: like={base}: unknown profile. Use one of {', '.join(names())}.")
        found = _over(_load(base), found)
    return _checked(given, found)


def _over(base: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """`found`, completed from `base`; tables are completed, too."""
    tables = {
        name: base[name] | value
        for name, value in found.items()
        if isinstance(value, dict) and isinstance(base.get(name), dict)
    }
    return base | found | tables


def _load(given: str) -> dict[str, Any]:
    try:
        return read_toml(given if given.endswith(".toml") else FOLDER / f"{given}.toml", _MOST)
    except OSError as error:
        raise LaunchError(f"{given}: cannot be read ({reason_of(error)}). Name another file.") from None
    except RecursionError:
        raise LaunchError(
            f"{given}: is not a profile; its values nest too deeply. Name another file."
        ) from None
    except ValueError as error:  # not TOML, or not text
        raise LaunchError(
            f"{given}: is not a TOML file ({' '.join(str(error).split())}). Name another file."
        ) from None


def _checked(given: str, found: dict[str, Any]) -> Profile:
    known = [field.name for field in fields(Profile)]
    for name in found:
        if name not in known:
            raise LaunchError(f"{given}: {name}: unknown field. Use one of like, {', '.join(known)}.")
    for name in known:
        if name not in found and name not in _OPTIONAL:
            raise LaunchError(
                f'{given}: {name} is missing. Add it, or take it from a profile with like = "h100".'
            )
    rates = found.get("rates")
    if "rates" in found:
        found = {**found, "rates": _listed(given, rates)}
    checks = {setting.option: setting.check for setting in SETTINGS}
    profile = Profile(
        **{name: _value(f"{given}: {name}", value, checks.get(name)) for name, value in found.items()}
    )
    required = [name for name in RATES if name not in _MAPPING]
    if missing := [name for name in required if rates is not None and name not in rates]:
        raise LaunchError(
            f"{given}: rates: {', '.join(missing)} missing. Add them, or take them from a profile with like "
            "= "
            '"h100".'
        )
    return profile


def _listed(given: str, rates: Any) -> str:
    """A table of numbers in the form of the setting."""
    if not isinstance(rates, dict) or not rates:
        raise LaunchError(
            f"{given}: rates={rates}: expected a table of numbers, such as {{memory = 3.35e12}}"
        )
    return ",".join(f"{name}={value}" for name, value in (_MAPPING | rates).items())


def _value(name: str, value: Any, check: Any) -> str:
    """A size may be an integer, of bytes."""
    allowed = (str,) if check is None else (str, int)
    if not isinstance(value, allowed) or isinstance(value, bool):
        raise LaunchError(
            f"{name}={value}: expected text{'' if check is None else ' such as 80GiB, or an integer'}"
        )
    return str(value) if check is None else str(check(name, str(value)))
