# SPDX-License-Identifier: Apache-2.0
"""Makes the C++ table of settings, allocator/base/settings.inc, from python/spillway/settings.toml.

Usage: python scripts/settings_table.py [--write]

Prints the table, or writes it; a test compares. Python reads settings.toml itself.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "allocator/base/settings.inc"
sys.path.append(str(ROOT / "python"))

from spillway.settings import ALL, EMULATOR, RULES  # noqa: E402

__all__ = ["ALL", "EMULATOR", "RULES", "TABLE", "table"]

HEADER = """// SPDX-License-Identifier: Apache-2.0
// Made from python/spillway/settings.toml by scripts/settings_table.py --write. The fields are those of
// Setting, Part and Rule (allocator/base/settings.h).
"""
# Texts that the launcher checks further; the libraries take any.
TEXTS = ("file", "folder", "fault", "profile")


def table() -> str:
    return HEADER + "".join(f"{line}\n" for line in _lines())


def _lines() -> Iterator[str]:
    for each in ALL.values():
        kind = "text" if each.type in TEXTS else each.type
        names = (each.variable, each.flag if each.commands else "", each.metavar)
        texts = (",".join(each.range.choices), each.default, each.example, each.advice)
        enumerators = f"Section::k{each.of.capitalize()}, Type::k{kind.capitalize()}"
        strings = _call(*names, each.range.least, each.range.most, *texts)
        yield f"SPILLWAY_SETTING({strings}, {enumerators}, {_call(each.range.above, each.starts)})"
    for each in ALL.values():
        for limits, listed, description in each.parts:
            is_flag = limits.type == "flag"
            ends = ("0", "1") if is_flag else (limits.least, limits.most)
            strings = _call(each.variable, listed.replace(" ", ","), *ends, description)
            yield f"SPILLWAY_PART({strings}, {_call(is_flag, limits.above)})"
    for rule in RULES:
        lists = (",".join(rule.get(field, ())) for field in ("settings", "needs", "excludes"))
        yield f"SPILLWAY_RULE({_call(*lists, rule.get('because', ''), rule.get('action', ''))})"


def _call(*values: str | bool) -> str:
    """As arguments of C++."""
    return ", ".join(json.dumps(value, ensure_ascii=False) for value in values)


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        TABLE.write_text(table())
    else:
        print(table(), end="")
