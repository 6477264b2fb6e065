# SPDX-License-Identifier: Apache-2.0
"""Lists every message that a user can get, from the sources: errors, warnings and log lines.

Usage: python scripts/messages.py [--write]

Prints the list, or writes it to tests/errors/messages.md: one message a line, by folder or module, with the
type of the error before it. Parts that are only known at run time are in {braces}. --write also provokes one
error of each kind and writes what the user reads to tests/errors/samples.md. PYTHONPATH must name the built
package.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import settings_table

ROOT = Path(__file__).parents[1]
SNAPSHOT = ROOT / "tests/errors/messages.md"
CPP_FOLDERS = ("allocator", "emulator", "hooks", "include", "interpose", "torch_glue")
PYTHON_FOLDER = "python/spillway"
HEADER = """# Every message of Spillway

Made from the sources by `python scripts/messages.py --write`; a test compares. Before each message is the
type of its error, or the function that logs it. Parts that are only known at run time are in {braces}.
"""


class Message(NamedTuple):
    component: str
    kind: str
    text: str


#: Calls that write a line to the log.
LOG = re.compile(r"_?log\w*\.(?:debug|info|warning|error|exception|log)$")


def python_text(node: ast.expr, named: dict[str, list[str]]) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(python_text(each, named) for each in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return python_text(node.left, named) + python_text(node.right, named)
    if isinstance(node, ast.Name) and node.id in named:
        return " / ".join(named[node.id])
    if isinstance(node, ast.FormattedValue):
        node = node.value
    return "{" + ast.unparse(node) + "}"


#: Functions of the package that print a line for the user, and those that return a part of a message.
PRINTING = ("announce", "_warn", "_end", "refused")
RETURNING = ("instead_of", "why_not")


def prints(node: ast.Call) -> bool:
    """Whether the call writes a line to stderr."""
    if not re.search(r" \w", re.sub(r"\{.*?\}", "", " ".join(python_text(each, {}) for each in node.args))):
        return False  # it has no words of its own
    to_stderr = any(each.arg == "file" and ast.unparse(each.value) == "sys.stderr" for each in node.keywords)
    return to_stderr or called(node) in PRINTING


def called(node: ast.Call) -> str:
    return ast.unparse(node.func).split(".")[-1]


def python_messages(source: str, component: str) -> Iterator[Message]:
    """Of each raise with an expression, call of an error's class, warning, log or stderr line."""
    found: list[Message] = []
    named: dict[str, list[str]] = {}
    tree = ast.parse(source)
    for node in ast.walk(tree):  # messages that a variable or a constant holds
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            text = python_text(node.value, {})
            if " " in re.sub(r"\{.*?\}", "", text):
                named.setdefault(node.targets[0].id, []).append(text)
    raised = {id(node.exc): node.exc for node in ast.walk(tree) if isinstance(node, ast.Raise) and node.exc}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = called(node)
            makes = re.search(r"(Error|Exception|Exit|Warning)$", name) and name[:1].isupper()
            warns = LOG.search(ast.unparse(node.func)) or (name == "warn" and node.args)
            if id(node) in raised or makes or warns or prints(node):
                texts = [python_text(each, named) for each in node.args if not isinstance(each, ast.Starred)]
                found.append(Message(component, name, " | ".join(texts)))
        elif id(node) in raised:
            found.append(Message(component, "raise", "{" + ast.unparse(node) + "}"))
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and (
            node.name in RETURNING or node.name.endswith("Error")
        ):
            for part in ast.walk(node):
                if isinstance(part, ast.Return) and isinstance(part.value, ast.JoinedStr):
                    found.append(Message(component, node.name, python_text(part.value, named)))
    return iter(found)


# C++

SITE = re.compile(
    r"\b(?:(SPILLWAY_ERROR|TORCH_(?:CHECK|WARN|INTERNAL_ASSERT)\w*|PyErr_(?:SetString|Format|WarnEx)|log|raise_as)"
    r"|throw\s+([\w:]+)|return\s+(?=\{Code::k))\s*([({])"
)
#: Functions whose arguments are a part of a message: they return a Status, or do not return.
HELPER = re.compile(
    r"(?:\bStatus|\[\[noreturn\]\] void|const auto) (?:\w+::)*(\w+)(?:\([^()]*\) (?:const )?\{| = \[)"
)
#: Functions that return a message or a part of one.
TEXT = re.compile(
    r"\bstd::string (?:\w+::)*(\w*(?:text|advice|why|detail|describe|limit)\w*)\([^;{}]*\) (?:const )?\{"
)
LITERAL = r'"(?:[^"\\\n]|\\.)*"'


def without_comments(source: str) -> str:
    kept = re.sub(rf"({LITERAL}|'(?:[^'\\]|\\.)')|//[^\n]*|/\*.*?\*/", r"\1", source, flags=re.DOTALL)
    return kept.replace("\\\n", " \n")


def arguments(source: str, begin: int) -> list[str]:
    """What is in the brackets that open there, split at commas."""
    parts, depth, start = [], 0, begin + 1
    for match in re.compile(rf"{LITERAL}|'(?:[^'\\]|\\.)'|[(){{}}\[\],]").finditer(source, begin):
        depth += (match[0] in "({[") - (match[0] in ")}]")
        if depth == 0 or (depth == 1 and match[0] == ","):
            parts.append(source[start : match.start()])
            start = match.end()
        if depth == 0:
            break
    return [part for part in parts if part.strip()]


def cpp_text(parts: list[str]) -> str:
    """Literals as they are, other expressions in braces; `+` and commas join them."""
    code = re.sub(r"\s+", " ", " + ".join(parts))
    code = re.sub(rf"std::string\(({LITERAL})\)", r"\1", code)
    code = re.sub(r"std::(?:to_)?string\((\w[\w.:]*(?:\(\))?)\)", r"\1", code)
    text, depth, other = "", 0, ""
    for token in re.findall(rf"{LITERAL}|.", code):
        depth += (token in "([{") - (token in ")]}")
        if depth == 0 and (token.startswith('"') or token == "+"):
            text += "{" + other.strip() + "}" if other.strip() else ""
            text += token[1:-1].replace('\\"', '"').replace("\\n", " ") if token != "+" else ""
            other = ""
        else:
            other += token
    return text + ("{" + other.strip() + "}" if other.strip() else "")


def kind_and_parts(name: str, parts: list[str]) -> tuple[str, list[str]]:
    if name in ("SPILLWAY_ERROR", ""):
        return parts[0].strip().removeprefix("Code::"), parts[1:2]
    if name.startswith(("TORCH_CHECK", "TORCH_INTERNAL", "PyErr", "raise_as")):
        return name if not name.startswith(("PyErr", "raise_as")) else parts[0].strip(), parts[1:]
    return name, parts


def cpp_messages(source: str, component: str) -> Iterator[Message]:
    source = without_comments(source)
    named: dict[str, list[str]] = {}  # text that a variable holds
    for name, value in re.findall(rf'(?<![\w.])(\w+) \+?= ((?:{LITERAL}|[^;"=])*);', source):
        if re.search(r'"[^"]* [^"]*"', value):
            named.setdefault(name, []).append(cpp_text([value]))
    for match in SITE.finditer(source):
        line = source[source.rfind("\n", 0, match.start()) + 1 : match.start()]
        if line.lstrip().startswith("#") or (match[1] == "log" and re.search(r"void $|\.$|->$|::$", line)):
            continue
        parts = arguments(source, match.end(3) - 1)
        kind, parts = kind_and_parts(match[1] or match[2] or "", parts)
        texts = [
            " … ".join(named[part.strip()]) if part.strip() in named else cpp_text([part]) for part in parts
        ]
        yield Message(component, kind, "".join(texts))
    for name in sorted(set(HELPER.findall(source))):
        for match in re.finditer(rf"\b{name}\(", source):
            parts = arguments(source, match.end() - 1)
            if any(re.match(r'\s*"[^"]* ', part) for part in parts):
                yield Message(component, name, cpp_text([f' {part} + " "' for part in parts]).strip())
    for match in TEXT.finditer(source):
        body = ",".join(arguments(source, match.end() - 1))
        literals = [each for each in re.findall(rf"((?:{LITERAL}\s*)+)", body) if " " in each.strip('" \n')]
        if literals:
            yield Message(component, match[1], " … ".join(cpp_text([each]) for each in literals))


def messages() -> list[Message]:
    found: list[Message] = []
    for folder in CPP_FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".cpp", ".h", ".inc"):
                found += cpp_messages(path.read_text(), str(path.parent.relative_to(ROOT)))
    for path in sorted((ROOT / PYTHON_FOLDER).rglob("*.py")):
        module = ".".join(path.relative_to(ROOT / "python").with_suffix("").parts)
        found += python_messages(path.read_text(), module)
    found += [Message("settings.toml", "advice", each.advice) for each in settings_table.ALL.values()]
    for rule in settings_table.RULES:
        found += [Message("settings.toml", field, rule.get(field, "")) for field in ("because", "action")]
    return found


def snapshot() -> str:
    lines, last = [HEADER], ""
    for component, kind, text in sorted({each for each in messages() if each.text}):
        if component != last:
            lines.append(f"\n## {component}\n")
        last = component
        lines.append(f"- {kind}: {' '.join(text.split())}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        SNAPSHOT.write_text(snapshot())
        if not settings_table.EMULATOR.exists():
            sys.exit("samples.md: not written. Set PYTHONPATH to the built package, as build/release/python.")
        subprocess.run([sys.executable, ROOT / "tests/errors/samples.py"], check=True)
    else:
        print(snapshot(), end="")
