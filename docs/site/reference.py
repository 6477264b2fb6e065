# SPDX-License-Identifier: Apache-2.0
"""The reference pages of the site, from what they describe: package, commands, settings, headers."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

#: Public modules beside the package itself.
MODULES = (
    "memory",
    "tags",
    "compat",
    "compat.torchtune",
    "compat.trl",
    "compat.fairscale",
    "emulator",
    "statistics",
    "memory_saver",
    "recorder",
)
_SETTINGS = """
import json
from spillway.settings import ALL, RULES
def row(each):
    limits = (("above" if each.range.above else "from", each.range.least), ("to", each.range.most))
    values = [f"{word} {limit}" for word, limit in limits if limit]
    return each.group, (
        f"`{each.flag} {each.metavar}".rstrip() + "`" if each.commands else "–",
        f"`{each.variable}`",
        " ".join(["0 or 1" if each.is_switch else ", ".join(each.range.choices) or each.type, *values]),
        f"`{each.default}`" if each.default else "",
        each.help,
    )
print(json.dumps([[row(each) for each in ALL.values()], RULES]))
"""


def pages(root: Path) -> dict[str, str]:
    """Text by the page's path below docs."""
    return {
        "reference/python.md": _python(root / "python/spillway"),
        "reference/commands.md": _commands(root),
        "reference/settings.md": _settings(root),
        "reference/c.md": _headers(root, "C header", ("spillway.h",)),
        "reference/cpp.md": _headers(root, "C++ headers", _in_folder(root, "torch")),
    }


def as_markdown(text: str) -> str:
    text = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text)
    # Before the literals change: a term is a line that begins with a literal, its definition is indented.
    text = re.sub(
        r"^( *)(``[^\n]+``(?: \([^)\n]*\))?)\n\1    (?=\S)", r"\1\2\n\1:   ", text, flags=re.MULTILINE
    )
    text = re.sub(r"``([^`\n]+)``", r"`\1`", text)
    return re.sub(r"::$", ":", text, flags=re.MULTILINE)


# --- Python -------------------------------------------------------------------------------------------------


def _python(package: Path) -> str:
    shown: dict[str, str] = {}
    text = "# Python\n\n## spillway\n\n" + _module("spillway", package / "__init__.py", shown)
    for name in MODULES:
        file = package.joinpath(*name.split("."))
        file = file / "__init__.py" if file.is_dir() else file.with_suffix(".py")
        text += f"\n## spillway.{name}\n\n" + _module(f"spillway.{name}", file, shown)
    return text


def _module(name: str, file: Path, shown: dict[str, str]) -> str:
    """The public names of a module. `shown` names each definition: none is described twice."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    imports = {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }
    text, again = "", ""
    for each in _exported(tree):
        public, where = f"{name}.{each}", imports.get(each, f"{name}.{each}")
        if each.startswith("_"):
            continue
        if where in shown:
            again += f"* `{public}` is [`{shown[where]}`](#{shown[where]})\n"
        else:
            shown[where] = public
            text += f'<a id="{public}"></a>\n\n::: {where}\n    options:\n      heading: {public}\n\n'
    about = as_markdown(ast.get_docstring(tree) or "")
    return f"{about}\n\n{again}\n{text}"


def _exported(tree: ast.Module) -> list[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            names: list[str] = ast.literal_eval(node.value)
            return names
    # Without __all__: what the module defines, and what it takes from the package.
    return [
        name
        for node in tree.body
        for name in (
            [alias.asname or alias.name for alias in node.names]
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("spillway")
            else [node.name]
            if isinstance(node, ast.FunctionDef | ast.ClassDef)
            else []
        )
    ]


# --- Commands and settings ----------------------------------------------------------------------------------


def _run(root: Path, *arguments: str) -> str:
    env = os.environ | {"PYTHONPATH": str(root / "python"), "COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}
    return subprocess.run(
        [sys.executable, *arguments], env=env, cwd=root, check=True, capture_output=True, text=True
    ).stdout


def _commands(root: Path) -> str:
    names = _run(root, "-c", "from spillway.cli import COMMANDS; print(*COMMANDS)").split()
    text = "# Command line\n\nThe help of each command, as the command prints it.\n"
    for arguments in ([], *([name] for name in names), ["trace", "show"]):
        title = " ".join(["spillway", *arguments])
        said = _run(root, "-m", "spillway", *arguments, "--help")
        text += f"\n## {title}\n\n~~~~text\n{said.rstrip()}\n~~~~\n"
    return text


def _settings(root: Path) -> str:
    rows, rules = json.loads(_run(root, "-c", _SETTINGS))
    text = (
        "# Settings\n\nEach option of a command has an environment variable; the option takes precedence. An "
        "unknown `SPILLWAY_` variable, and an invalid value, are errors.\n"
    )
    last = ""
    for group, cells in rows:
        if group != last:
            text += f"\n## {group}\n\n| option | variable | values | default | meaning |\n"
            text += "|---|---|---|---|---|\n"
        last = group
        text += f"| {' | '.join(cells)} |\n"
    text += "\n## Settings that exclude or need others\n\n"
    text += "| setting | excludes | needs one of | because it |\n|---|---|---|---|\n"
    for rule in rules:
        lists = (rule.get(each, ()) for each in ("settings", "excludes", "needs"))
        cells = (*(", ".join(f"`{term}`" for term in each) for each in lists), rule.get("because", ""))
        text += f"| {' | '.join(cells)} |\n"
    return text


# --- Headers ------------------------------------------------------------------------------------------------


def _in_folder(root: Path, folder: str) -> tuple[str, ...]:
    return tuple(f"{folder}/{each.name}" for each in sorted((root / "include/spillway" / folder).glob("*.h")))


def _headers(root: Path, title: str, names: tuple[str, ...]) -> str:
    text = f"# {title}\n\nThe comments are the contract of each declaration.\n"
    for name in names:
        source = (root / "include/spillway" / name).read_text(encoding="utf-8")
        text += f"\n## spillway/{name}\n\n~~~~cpp\n{source.rstrip()}\n~~~~\n"
    return text
