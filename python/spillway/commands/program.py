# SPDX-License-Identifier: Apache-2.0
"""Starts the command of `run`, `emulate` and `dry-run`."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from spillway import profiles
from spillway._files import can_be_written, reason_of
from spillway._text import printable
from spillway.checked_run import run_checked
from spillway.commands.help import no_command
from spillway.commands.interpreters import is_python, torch_without_cuda
from spillway.doctor import gpu
from spillway.dry_run.alternatives import parse
from spillway.dry_run.question import Question
from spillway.dry_run.search import Search
from spillway.settings import PROFILE

BAD_USAGE = 2
NOT_EXECUTABLE = 126
NOT_FOUND = 127


def start(
    context: click.Context,
    command: Sequence[str],
    env: Mapping[str, str],
    question: Question | Search | None = None,
) -> None:
    """Replaces this process by the command; or, with --check or in a dry run, runs the command and exits with
    its status. The environment may ask for a dry run without a `question`.

    Raises ClickException if nothing can be started.
    """
    if not command:
        raise no_command(context)
    if env.get("SPILLWAY_DISABLE") != "1":
        if not (_emulated(env) or gpu.device_count()):
            raise click.ClickException(
                "no GPU was found. Use spillway emulate or spillway dry-run, or run spillway doctor to see "
                "why."
            )
        if env.get("SPILLWAY_REPORT"):
            _try_folder(Path(env["SPILLWAY_REPORT"]))
        if question is None and _is_dry(env):
            question = question_of(env)
    sys.exit(_status_of(context.command_path, command, env, question))


def _emulated(env: Mapping[str, str]) -> bool:
    return env.get("SPILLWAY_EMULATE") == "1"


def _is_dry(env: Mapping[str, str]) -> bool:
    return _emulated(env) and env.get("SPILLWAY_EMULATE_SHAPE_ONLY") == "1"


def question_of(
    env: Mapping[str, str],
    profile: str | None = None,
    samples: float | None = None,
    steps: int | None = None,
    compare: str | None = None,
    output: str | None = None,
) -> Question:
    """The question of a dry run with this environment. Raises ClickException or LaunchError for an unusable
    value."""
    check_output(output)
    given = profile or os.environ.get(PROFILE)
    alternatives = () if compare is None else tuple(parse(compare, env))
    return Question(profiles.read(given).name if given else "", samples, steps, alternatives, output)


def check_output(output: str | None) -> None:
    """Raises ClickException if the JSON of a dry run could not be written. None is none, and - is stdout."""
    if output is not None and output != "-" and not can_be_written(Path(output)):
        raise click.ClickException(f"--json={output}: cannot be written. Name a file in a writable folder.")


def _try_folder(folder: Path) -> None:
    """Raises ClickException if the job could not write into `folder`. Leaves nothing behind: the job creates
    it."""
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
        raise click.ClickException(
            f"--report={folder}: cannot be written ({reason_of(error)}). Name a writable folder."
        ) from None


def _status_of(
    caller: str, command: Sequence[str], env: Mapping[str, str], question: Question | Search | None
) -> int:
    """Replaces this process by the command. Returns the exit status if that fails, with --check, and in a dry
    run (`question`)."""

    def refused(text: str, status: int) -> int:
        print(f"{caller}: {text}", file=sys.stderr)
        return status

    program = shutil.which(command[0], path=env.get("PATH"))
    if program is None:
        if os.path.exists(command[0]) and os.sep in command[0]:
            return refused(
                f"{printable(command[0])}: is not executable. Make it so with chmod +x.", NOT_EXECUTABLE
            )
        return refused(f"{printable(command[0])}: was not found. Check the command and PATH.", NOT_FOUND)
    if _emulated(env) and is_python(program) and (version := torch_without_cuda()):
        return refused(f"torch {version}: is not a CUDA build. Install a CUDA build of torch.", BAD_USAGE)
    if _emulated(env) and env.get("SPILLWAY_EMULATE_CHECK") == "1":
        return run_checked(program, command, env)
    if question is not None and env.get("SPILLWAY_DISABLE") != "1":
        return _answer(program, command, env, question)
    try:
        os.execve(program, list(command), env)
    except OSError as error:
        return refused(
            f"{printable(program)}: cannot be executed ({reason_of(error)}). Check its interpreter and "
            "architecture.",
            NOT_EXECUTABLE,
        )


def _answer(program: str, command: Sequence[str], env: Mapping[str, str], question: Question | Search) -> int:
    """Prints the page or the table to stderr. Returns the exit status."""
    from spillway.dry_run.comparison import compare
    from spillway.dry_run.run import run_dry

    if isinstance(question, Search):
        from spillway.dry_run.fitting import fit

        return fit(program, command, question)
    if question.alternatives:
        return compare(program, command, env, question)
    return run_dry(program, command, env, question)
