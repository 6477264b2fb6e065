# SPDX-License-Identifier: Apache-2.0
"""A job's model state at its end, from a file beside its log. Imports no torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from spillway._files import read_text, reason_of, replace
from spillway._resident_reasons import class_lines, reason_lines
from spillway._text import parse_json, printable
from spillway.report.log import ReportError, RunLog
from spillway.report.sizes import size

__all__ = ["SUFFIX", "facts", "model_state_of", "section", "write_model_state"]

SUFFIX = ".state.json"
_MOST_NAMES = 64


def write_model_state(path: Path, state: Mapping[str, Any]) -> None:
    """Writes what spillway.stats() has of it to a file that only the user can read; no file without model
    state. Raises OSError."""
    if any(of["storages"] for of in (*state["classes"].values(), *state["resident_reasons"].values())):
        replace({path: json.dumps(state)})


def model_state_of(log: RunLog) -> dict[str, Any] | None:
    """None if the job managed none, or has not ended. Raises ReportError for a damaged file."""
    path = log.path.with_suffix(SUFFIX)
    try:
        return _checked(parse_json(read_text(path)))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ReportError(
            f"{path}: cannot be read ({reason_of(error)}). Make it readable, or delete it."
        ) from None
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise ReportError(
            f"{path}: is damaged ({printable(repr(error))[:200]}). Delete it, or run the job again with "
            "--report."
        ) from None


def _checked(found: dict[str, Any]) -> dict[str, Any]:
    """What the report uses of it. Raises LookupError, TypeError, ValueError or AttributeError for what no job
    writes."""
    return {
        "classes": _counts(found["classes"], ("storages", "resident_bytes", "offloaded_bytes")),
        "resident_reasons": _counts(found["resident_reasons"], ("storages", "bytes")),
        "whole_steps": {_name(each): _name(why) for each, why in _few(found["whole_steps"].items())},
        **{key: _number(found[key]) for key in ("copied_bytes", "fetched_bytes", "dropped_bytes")},
    }


def _counts(found: dict[str, Any], members: tuple[str, ...]) -> dict[str, dict[str, int]]:
    return {_name(name): {each: _number(of[each]) for each in members} for name, of in _few(found.items())}


def _few(values: Any) -> list[Any]:
    found = list(values)
    if len(found) > _MOST_NAMES:
        raise ValueError(f"{len(found)} names")
    return found


def _name(value: Any) -> str:
    if not isinstance(value, str) or len(value) > 200:
        raise TypeError(f"{value!r} is no name")
    return printable(value)


def _number(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise ValueError(f"{value!r} is no number of bytes")
    return value


def facts(log: RunLog) -> list[str]:
    state = model_state_of(log)
    if state is None:
        return []
    found = []
    if classes := class_lines(state["classes"]):
        found.append(f"Model state at the end: {'; '.join(classes)}.")
    if state["copied_bytes"] or state["fetched_bytes"]:
        found.append(
            f"Model state copied to the host: {size(state['copied_bytes'])}, back: "
            f"{size(state['fetched_bytes'])}, offloaded without a copy: {size(state['dropped_bytes'])}."
        )
    if reasons := reason_lines(state):
        found.append(f"Model state that stays on the GPU: {'; '.join(reasons)}.")
    return found


def section(log: RunLog) -> str:
    found = facts(log)
    if not found:
        return ""
    items = "".join(f"<li>{escape(each)}</li>" for each in found)
    return f'<h2>Model state</h2><ul class="facts">{items}</ul>'
