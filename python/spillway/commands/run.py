# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from spillway import profiles
from spillway._files import reason_of
from spillway._text import printable
from spillway.checked_run import run_checked
from spillway.commands import dry, options
from spillway.commands.interpreters import is_python, torch_without_cuda
from spillway.doctor import gpu
from spillway.dry_run.question import Question

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
  spillway run --emulate h200 --shape-only --samples-per-step 8 -- python train.py
  spillway run --emulate h200 --shape-only --compare plain,checkpoint,recompute,ratio=0.5 -- python train.py
"""


def _files(_: click.Context, __: click.Parameter, begun: str) -> list[CompletionItem]:
    """The shell's own completion."""
    return [CompletionItem(begun, type="file")]


@click.command(
    cls=options.Command,
    epilog=_EXAMPLES,
    context_settings={"allow_interspersed_args": False},
    options_metavar="[options] --",
)
@options.shared
@dry.questions
@click.argument("command", nargs=-1, type=click.UNPROCESSED, shell_complete=_files)
@click.pass_context
def run(context: click.Context, /, command: tuple[str, ...], **values: Any) -> None:
    """Run a command under Spillway.

    Signals and the exit status are the command's own. With --check the status is 3 where the command
    succeeded and reports were made. Without a GPU and without --emulate nothing is started, unless
    SPILLWAY_DISABLE=1 says that nothing is wanted.
    """
    asked = dry.taken_from(values)
    env = options.environment(**values)
    question = dry.question(asked, values["emulate"], env)
    if not command:
        raise click.UsageError("expected a command after --, as in: spillway run -- python train.py")
    if env.get("SPILLWAY_DISABLE") != "1":
        if not (emulated(env) or gpu.device_count()):
            raise click.ClickException("there is no GPU here: add --emulate, or see spillway doctor")
        if env.get("SPILLWAY_REPORT"):
            try_folder(Path(env["SPILLWAY_REPORT"]))
    sys.exit(start(command, env, command[0] == context.meta.get(options.NO_PROFILE), question))


def emulated(env: Mapping[str, str]) -> bool:
    return env.get("SPILLWAY_EMULATE") == "1"


def try_folder(folder: Path) -> None:
    """ClickException where the job could not write into it. Leaves nothing behind: the job makes it."""
    missing = [each for each in (folder, *folder.parents) if not os.path.exists(each)]
    try:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
        finally:
            for each in missing:
                with contextlib.suppress(OSError):
                    each.rmdir()
    except OSError as error:
        raise click.ClickException(f"--report {folder}: cannot be written: {reason_of(error)}") from None


def start(
    command: Sequence[str],
    env: dict[str, str],
    behind_emulate: bool = False,
    question: Question | None = None,
) -> int:
    """Becomes the command; returns only where that fails, where the command's accesses are checked, and where
    there is a `question` to answer. A program that was named right behind --emulate may have been meant as a
    profile."""
    program = shutil.which(command[0], path=env.get("PATH"))
    if program is None:
        there = os.path.exists(command[0]) and os.sep in command[0]
        why = "is not executable" if there else "was not found"
        if behind_emulate:
            why += f", and is no profile: known are {', '.join(profiles.names())}"
        print(f"spillway run: {printable(command[0])} {why}", file=sys.stderr)
        if behind_emulate:
            return BAD_USAGE
        return NOT_EXECUTABLE if there else NOT_FOUND
    if emulated(env) and is_python(program) and (version := torch_without_cuda()):
        print(
            f"spillway run: torch {version} has no CUDA build: install one that has",
            file=sys.stderr,
        )
        return BAD_USAGE
    if emulated(env) and env.get("SPILLWAY_EMULATE_CHECK") == "1":
        return run_checked(program, command, env)
    if question is not None and env.get("SPILLWAY_DISABLE") != "1":
        return dry.answer(program, command, env, question)
    try:
        os.execve(program, list(command), env)
    except OSError as error:
        print(f"spillway run: {printable(program)}: {error.strerror}", file=sys.stderr)
        return NOT_EXECUTABLE
