# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

from spillway.checked_run import run_checked
from spillway.commands import options
from spillway.commands.interpreters import is_python, torch_without_cuda
from spillway.doctor import gpu
from spillway.settings import JOB

BAD_USAGE = 2
NOT_EXECUTABLE = 126
NOT_FOUND = 127

_EXAMPLES = """\b
Examples:
  spillway run --ratio 0.5 -- python train.py
  spillway run --budget 20GiB --report out -- torchrun --nproc-per-node 2 train.py
  spillway run --tag-ratio 'mlp=0.8' --tag-ratio 'attention=0.3' -- python train.py
  spillway run --emulate --check -- python train.py
  spillway run --emulate h100 --clock virtual --ratio 0.5 -- python train.py
"""


@click.command(
    cls=options.Command,
    epilog=_EXAMPLES,
    context_settings={"allow_interspersed_args": False},
    options_metavar="[options] --",
)
@options.shared
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def run(command: tuple[str, ...], **values: Any) -> None:
    """Run a command under Spillway.

    Signals and the exit status are the command's own. With --check the status is 3 where the command
    succeeded and reports were made.
    """
    env = options.environment(**values)
    if not command:
        raise click.UsageError("expected a command after --, as in: spillway run -- python train.py")
    if any(env.get(setting.variable) for setting in JOB) and not (emulated(env) or gpu.device_count()):
        raise click.ClickException("there is no GPU here: add --emulate, or see spillway doctor")
    sys.exit(start(command, env))


def emulated(env: Mapping[str, str]) -> bool:
    return env.get("SPILLWAY_EMULATE") == "1"


def start(command: Sequence[str], env: dict[str, str]) -> int:
    """Becomes the command; returns only where that fails, or where the command's accesses are checked."""
    program = shutil.which(command[0], path=env.get("PATH"))
    if program is None:
        there = os.path.exists(command[0]) and os.sep in command[0]
        why = "is not executable" if there else "was not found"
        print(f"spillway run: {command[0]} {why}", file=sys.stderr)
        return NOT_EXECUTABLE if there else NOT_FOUND
    if emulated(env) and is_python(program) and (version := torch_without_cuda()):
        print(
            f"spillway run: torch {version} has no CUDA build: install one that has",
            file=sys.stderr,
        )
        return BAD_USAGE
    if emulated(env) and env.get("SPILLWAY_EMULATE_CHECK") == "1":
        return run_checked(program, command, env)
    try:
        os.execve(program, list(command), env)
    except OSError as error:
        print(f"spillway run: {program}: {error.strerror}", file=sys.stderr)
        return NOT_EXECUTABLE
