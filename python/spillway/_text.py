# SPDX-License-Identifier: Apache-2.0
"""Text and JSON from outside: files that another process wrote, and names that a job or a user chose."""

from __future__ import annotations

import json
import re
from typing import Any

__all__ = ["parse_json", "printable"]

# Control characters (C0, DEL, C1), line separators, bidirectional overrides, and halves of surrogate pairs.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
# JSON that parse_json checks value by value: it has escapes, unprintable characters, or large numbers.
_SUSPECT = re.compile(
    "[\\\\\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]|[0-9]{32}|[0-9][eE]"
)

_MOST_DEPTH = 32
_MOST_DIGITS = 32


def printable(text: str) -> str:
    """`text` with each control character, bidirectional override and lone surrogate replaced by its escape
    (``\\x1b``, ``\\u202e``), so that it cannot control a terminal and can be encoded."""
    return _UNPRINTABLE.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    if 0xDC80 <= code <= 0xDCFF:  # a byte that was no UTF-8
        return f"\\x{code - 0xDC00:02x}"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def parse_json(text: str) -> Any:
    """The value of a JSON document, all of its strings printable (see `printable`).

    Raises json.JSONDecodeError where `text` is not JSON, and another ValueError where it nests deeper than 32
    levels, or a number has more than 32 digits or is not finite."""
    if _SUSPECT.search(text) is None:
        value = _loads(text)
    else:
        value = _printable_value(_loads(text, parse_int=_integer, parse_float=_number))
    if text.count("[") + text.count("{") > _MOST_DEPTH and _nests_deeper(value, _MOST_DEPTH):
        raise ValueError(f"JSON nests deeper than {_MOST_DEPTH} levels")
    return value


def _loads(text: str, **hooks: Any) -> Any:
    try:
        return json.loads(text, parse_constant=_not_finite, **hooks)
    except RecursionError:
        raise ValueError(f"JSON nests deeper than {_MOST_DEPTH} levels") from None


def _integer(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise ValueError(f"a number has {len(digits)} digits, and at most {_MOST_DIGITS} are allowed")
    return int(digits)


def _number(digits: str) -> float:
    value = float(digits)
    return _not_finite(digits[:_MOST_DIGITS]) if value in (float("inf"), float("-inf")) else value


def _not_finite(constant: str) -> float:
    raise ValueError(f"{constant} is not a finite number")


def _printable_value(value: Any, depth: int = 0) -> Any:
    if isinstance(value, str):
        return printable(value)
    if depth > _MOST_DEPTH:
        raise ValueError(f"JSON nests deeper than {_MOST_DEPTH} levels")
    if isinstance(value, list):
        return [_printable_value(each, depth + 1) for each in value]
    if isinstance(value, dict):
        return {printable(name): _printable_value(each, depth + 1) for name, each in value.items()}
    return value


def _nests_deeper(value: Any, levels: int) -> bool:
    if not isinstance(value, list | dict):
        return False
    inside = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(_nests_deeper(each, levels - 1) for each in inside)
