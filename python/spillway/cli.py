# SPDX-License-Identifier: Apache-2.0
"""The `spillway` command."""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from spillway.checked_run import run_checked
from spillway.launch import SETTINGS, LaunchError, environment

BAD_USAGE = 2
NOT_EXECUTABLE = 126
NOT_FOUND = 127


class _Parser(argparse.ArgumentParser):
    """One line for a mistake, not a page of usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(BAD_USAGE, f"{self.prog}: {message} (see {self.prog} --help)\n")


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("spillway")
    except PackageNotFoundError:
        return "(not installed)"


def _parser() -> argparse.ArgumentParser:
    settings = _Parser(add_help=False, allow_abbrev=False)
    settings.add_argument("--emulate", action="store_true", help="run on the emulated GPU: needs no GPU")
    for setting in SETTINGS:
        if setting.option in ("check", "poison"):
            settings.add_argument(setting.flag, action="store_true", default=None, help=setting.help)
        else:
            settings.add_argument(setting.flag, help=setting.help)

    parser = _Parser(
        prog="spillway", allow_abbrev=False, description="Train with more memory than the GPU has."
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    commands = parser.add_subparsers(dest="door", metavar="{run,env,trace}", parser_class=_Parser)
    run = commands.add_parser(
        "run",
        parents=[settings],
        allow_abbrev=False,
        usage="spillway run [options] -- command ...",
        help="run a command under Spillway",
        description="Runs a command under Spillway. Signals and the exit status are the command's own. "
        "With --check the status is 3 where the command succeeded and reports were made.",
    )
    run.add_argument("command", nargs=argparse.REMAINDER, help="the command and its arguments")
    commands.add_parser(
        "env",
        parents=[settings],
        allow_abbrev=False,
        help="print what `run` would set, for a shell to evaluate",
        description="Prints the variables that `spillway run` with the same options would set.",
    )
    trace = commands.add_parser(
        "trace",
        allow_abbrev=False,
        help="show what a trace of allocations holds",
        description="Prints a summary, as JSON, of a trace that spillway.record_trace() has written.",
    )
    trace.add_argument("action", choices=("show",), help="what to do with it")
    trace.add_argument("file", help="the trace")
    return parser


def _show_trace(path: str) -> int:
    import json

    from spillway.trace import read_trace, summary

    try:
        print(json.dumps(summary(read_trace(path)), indent=1))
    except ValueError as error:
        print(f"spillway trace: {error}", file=sys.stderr)
        return BAD_USAGE
    return 0


def _chosen_environment(chosen: argparse.Namespace) -> dict[str, str]:
    emulate = chosen.emulate or os.environ.get("SPILLWAY_EMULATE") == "1"
    return environment(emulate, **{setting.option: getattr(chosen, setting.option) for setting in SETTINGS})


def _torch_without_cuda() -> str | None:
    """The version of the torch that Python imports here, where it cannot use a GPU. Found without an import:
    that takes seconds."""
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        return None
    try:
        text = (Path(found.origin).parent / "version.py").read_text()
    except OSError:
        return None
    if not re.search(r"^cuda\b.*=\s*None\s*$", text, re.MULTILINE):
        return None
    version = re.search(r"^__version__\s*=\s*['\"]([^'\"]+)", text, re.MULTILINE)
    return version[1] if version else "of an unknown version"


def _is_python(program: str) -> bool:
    """The interpreter, or a script that names it in its first line."""
    if os.path.basename(program).startswith("python"):
        return True
    try:
        with open(program, "rb") as file:
            first = file.readline(256)
    except OSError:
        return False
    return first.startswith(b"#!") and b"python" in first


def _run(command: Sequence[str], env: dict[str, str]) -> int:
    """Becomes the command; returns only where that fails, or where the command's accesses are checked."""
    program = shutil.which(command[0], path=env.get("PATH"))
    if program is None:
        there = os.path.exists(command[0]) and os.sep in command[0]
        why = "is not executable" if there else "was not found"
        print(f"spillway run: {command[0]} {why}", file=sys.stderr)
        return NOT_EXECUTABLE if there else NOT_FOUND
    if env.get("SPILLWAY_EMULATE") == "1" and _is_python(program) and (version := _torch_without_cuda()):
        print(
            f"spillway run: torch {version} has no CUDA build: install one that has",
            file=sys.stderr,
        )
        return BAD_USAGE
    if env.get("SPILLWAY_EMULATE") == "1" and env.get("SPILLWAY_EMULATE_CHECK") == "1":
        return run_checked(program, command, env)
    try:
        os.execve(program, list(command), env)
    except OSError as error:
        print(f"spillway run: {program}: {error.strerror}", file=sys.stderr)
        return NOT_EXECUTABLE


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    chosen = parser.parse_args(arguments)
    if chosen.version:
        print(f"spillway {_version()}")
        return 0
    if chosen.door is None:
        parser.error("expected a command: run, env or trace")
    if chosen.door == "trace":
        return _show_trace(chosen.file)
    try:
        env = _chosen_environment(chosen)
    except LaunchError as error:
        print(f"spillway {chosen.door}: {error}", file=sys.stderr)
        return BAD_USAGE
    if chosen.door == "env":
        for name in sorted(env):
            if env[name] != os.environ.get(name):
                print(f"export {name}={shlex.quote(env[name])}")
        return 0
    command = chosen.command[1:] if chosen.command[:1] == ["--"] else chosen.command
    if not command:
        print(
            "spillway run: expected a command after --, as in: spillway run -- python train.py",
            file=sys.stderr,
        )
        return BAD_USAGE
    return _run(command, env)


if __name__ == "__main__":
    sys.exit(main())
