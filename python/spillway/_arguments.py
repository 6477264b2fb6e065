# SPDX-License-Identifier: Apache-2.0
"""Checks of arguments: each error names the argument, its value and what is allowed."""

from __future__ import annotations

from typing import Any

__all__ = ["flag", "integer", "text_or_none"]

#: The maximum of the engine's counters.
_MOST = 2**63 - 1


def flag(name: str, value: Any) -> bool:
    """`value`. Raises TypeError if it is not a bool."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, not {value!r}")
    return value


def text_or_none(name: str, value: Any) -> str | None:
    """`value`. Raises TypeError if it is neither a string nor None."""
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{name} must be a string or None, not {value!r}")
    return value


def integer(name: str, value: Any, least: int, most: int = _MOST) -> int:
    """`value`. Raises TypeError if it is not an integer, ValueError if it is out of range."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an integer, not {value!r}")
    if not least <= value <= most:
        allowed = f"at least {least}" if most == _MOST and value < least else f"from {least} to {most}"
        raise ValueError(f"{name} must be {allowed}, not {value}")
    return value
