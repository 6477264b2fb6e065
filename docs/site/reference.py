# SPDX-License-Identifier: Apache-2.0
"""The reference pages of the site, from what they describe: package, commands, settings, headers."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

from docstrings import as_markdown

#: Public modules beside the package itself.
MODULES = (
    "memory",
    "tags",
    "compat",
    "compat.torchtune",
    "compat.trl",
    "compat.fairscale",
    "emulator",
    "memory_saver",
    "recorder",
)
_SETTINGS = """
import click, json
from spillway.settings import JOB, OTHER_HELP, OTHERS, SETTINGS
missing = OTHERS.keys() ^ OTHER_HELP.keys()
assert not missing, f"settings without a text, or texts without a setting: {missing}"
def rows(settings):
    return [(s.flag + ("" if s.is_switch else f" {s.metavar}"), s.variable, s.help) for s in settings]
print(json.dumps({"job": rows(JOB), "emulated": rows(SETTINGS), "others": sorted(OTHER_HELP.items())}))
"""


def pages(root: Path) -> dict[str, str]:
    """Text by the page's path below docs."""
    commands = _commands(root)
    return {
        "reference/python.md": _python(root / "python/spillway"),
        "reference/commands.md": commands,
        "reference/settings.md": _settings(root, commands),
        "reference/c.md": _headers(root, "C header", ("spillway.h",)),
        "reference/cpp.md": _headers(root, "C++ headers", _in_folder(root, "torch")),
    }


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


def _settings(root: Path, commands: str) -> str:
    found = json.loads(_run(root, "-c", _SETTINGS))
    text = (
        "# Settings\n\nEach option of a command has an environment variable; the option wins. An unknown "
        "`SPILLWAY_` variable, and a value that cannot be used, is an error.\n"
    )
    for title, key in (("Options of a job", "job"), ("The emulated GPU", "emulated")):
        text += f"\n## {title}\n\n| option | variable | meaning |\n|---|---|---|\n"
        for flag, variable, said in found[key]:
            # A command may set what it has no option for.
            option = f"`{flag}`" if flag.split()[0] in commands else "–"
            text += f"| {option} | `{variable}` | {said} |\n"
    text += "\n## Variables without an option\n\n| variable | meaning |\n|---|---|\n"
    return text + "".join(f"| `{name}` | {said} |\n" for name, said in found["others"])


# --- Headers ------------------------------------------------------------------------------------------------


def _in_folder(root: Path, folder: str) -> tuple[str, ...]:
    return tuple(f"{folder}/{each.name}" for each in sorted((root / "include/spillway" / folder).glob("*.h")))


def _headers(root: Path, title: str, names: tuple[str, ...]) -> str:
    text = f"# {title}\n\nThe comments are the contract of each declaration.\n"
    for name in names:
        source = (root / "include/spillway" / name).read_text(encoding="utf-8")
        text += f"\n## spillway/{name}\n\n~~~~cpp\n{source.rstrip()}\n~~~~\n"
    return text
