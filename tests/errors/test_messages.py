# SPDX-License-Identifier: Apache-2.0
"""tests/errors/messages.md lists every message of the sources, so that a change of one is reviewed."""

from __future__ import annotations

import difflib
import io
import itertools
import re
import sys
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "scripts"))

import messages  # noqa: E402


def test_the_list_is_that_of_the_sources() -> None:
    listed, found = messages.SNAPSHOT.read_text(), messages.snapshot()
    changes = difflib.unified_diff(listed.splitlines(), found.splitlines(), "listed", "sources", lineterm="")
    assert listed == found, "messages changed: read them, and run `python scripts/messages.py --write`\n" + (
        "\n".join(changes)
    )


CPP = {
    'if (x) return SPILLWAY_ERROR(Code::kNotReady, "a, (b" + text(1, 2) +\n " c");': (
        "kNotReady",
        "a, (b{text(1, 2)} c",
    ),
    'TORCH_CHECK_VALUE(a < f(1, 2), "Spillway: a is ",\n  a, ": give less");': (
        "TORCH_CHECK_VALUE",
        "Spillway: a is {a}: give less",
    ),
    'throw std::runtime_error("no \\"x\\"" + y);': ("std::runtime_error", 'no "x"{y}'),
    'return {Code::kDriver, std::string("a b") + c, __FILE__, __LINE__};': ("kDriver", "a b{c}"),
    'if (late) log("a line of " + name);': ("log", "a line of {name}"),
    'Status wrong(const char* what) { return f(what); }\nreturn wrong("it is too short");': (
        "wrong",
        "it is too short",
    ),
    'std::string text = "a b";\ntext += " and c";\nreturn SPILLWAY_ERROR(Code::kDriver, text);': (
        "kDriver",
        "a b …  and c",
    ),
    'std::string text_of(int x) {\n  if (x) return "one of " + y;\n  return "none of it";\n}': (
        "text_of",
        "one of  … none of it",
    ),
}


@pytest.mark.parametrize("source", CPP)
def test_a_message_of_cpp_is_found(source: str) -> None:
    assert messages.Message("c", *CPP[source]) in list(messages.cpp_messages(source, "c"))


PYTHON = {
    'raise ValueError(f"a is {a!r}" + ", too large")': ("ValueError", "a is {a}, too large"),
    'def f():\n    wrong = f"b is {b}"\n    raise TypeError(wrong)': ("TypeError", "b is {b}"),
    'def f():\n    return OSError(5, "is gone")': ("OSError", "5 | is gone"),
    'warnings.warn("is slow", stacklevel=2)': ("warn", "is slow"),
    '_log.info("step %d", step)': ("info", "step %d | {step}"),
    "raise error": ("raise", "{error}"),
    'raise SystemExit(_warn(f"{a}: is set twice"))': ("_warn", "{a}: is set twice"),
    'print("demo: failed", file=sys.stderr)': ("print", "demo: failed"),
}


@pytest.mark.parametrize("source", PYTHON)
def test_a_message_of_python_is_found(source: str) -> None:
    assert messages.Message("c", *PYTHON[source]) in list(messages.python_messages(source, "c"))


def sources(folders: tuple[str, ...], *suffixes: str) -> list[Path]:
    return [each for of in folders for each in sorted((ROOT / of).rglob("*")) if each.suffix in suffixes]


SITES = re.compile(
    r"\b(SPILLWAY_ERROR|TORCH_CHECK\w*|TORCH_WARN\w*|TORCH_INTERNAL_ASSERT\w*)\(|\bthrow +[\w:]+[({]"
)


@pytest.mark.parametrize(
    "path", sources(messages.CPP_FOLDERS, ".cpp", ".h", ".inc"), ids=lambda path: str(path.relative_to(ROOT))
)
def test_no_site_of_cpp_is_missed(path: Path) -> None:
    lines = [line for line in path.read_text().splitlines() if not re.match(r"\s*(//|#)", line)]
    sites = sum(len(SITES.findall(line)) for line in lines)
    found = list(messages.cpp_messages(path.read_text(), "c"))
    assert len([each for each in found if each.kind != "log"]) >= sites


@pytest.mark.parametrize(
    "path", sources((messages.PYTHON_FOLDER,), ".py"), ids=lambda path: str(path.relative_to(ROOT))
)
def test_no_raise_of_python_is_missed(path: Path) -> None:
    tokens = list(tokenize.generate_tokens(io.StringIO(path.read_text()).readline))
    raises = [
        after.type not in (tokenize.NEWLINE, tokenize.COMMENT)
        for token, after in itertools.pairwise(tokens)
        if token.type == tokenize.NAME and token.string == "raise"
    ]
    assert len(list(messages.python_messages(path.read_text(), "c"))) >= sum(raises)
