# SPDX-License-Identifier: Apache-2.0
"""Each command line of Spillway that a text has is one that the command accepts, and each option exists."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from page_examples import PAGES, ROOT, files, inline_code, pages
from spillway import cli, profiles

PACKAGE = ROOT / "python/spillway"
TEXTS = [*PAGES, *sorted(ROOT.glob("[a-z]*/README.md"))]
SOURCES = [*sorted(PACKAGE.rglob("*.py")), *sorted((ROOT / "examples").glob("*.py"))]
#: Options of other programs that texts name.
OF_OTHERS = {"--no-build-isolation", "--nproc-per-node", "--ntasks"}


def refusal(line: str) -> str | None:
    """Why `spillway` refuses a command line; None if it accepts it. Nothing is run."""
    words = shlex.split(line, comments=True)
    assert words.pop(0) == "spillway"
    with click.Context(cli.spillway, info_name="spillway") as context:
        command: click.Command = cli.spillway
        try:
            while isinstance(command, click.Group):
                if not words:
                    return None
                _, found, words = command.resolve_command(context, words)
                assert found is not None
                command = found
            command.make_context(command.name, list(words), parent=context).close()
        except (click.ClickException, cli.LaunchError) as error:
            return error.format_message() if isinstance(error, click.ClickException) else str(error)
    return None


def mentioned(line: str) -> str:
    """A whole command line, of one in prose that is shortened: `spillway run`, `spillway top --json`."""
    line = re.sub(r"\[[^\]]*\]|…|\.\.\.", "", line)
    line = re.sub(r"\bPROFILE\b", "h200", line)
    words = line.split()
    if words[1:] == ["fit"]:
        line += " h200"
    if len(words) > 1 and words[1] in ("run", "emulate", "dry-run", "fit") and "--" not in words:
        line += " -- python train.py"
    elif (
        len(words) > 1
        and words[1] in ("report", "explain", "top")
        and not re.search(r" [^-\s]", line[len("spillway top") :])
    ):
        line += " out"
    return line


def lines_of_blocks() -> Iterator[tuple[str, str]]:
    for page in pages():
        for block in page.of("bash") + [each for each in page.blocks if each.not_run]:
            for command in block.commands:
                if found := re.search(r"\bspillway [^)]*", command):
                    yield f"{page.name}:{block.line}", found[0].rstrip('"')


def lines_of_prose() -> Iterator[tuple[str, str]]:
    for path in TEXTS:
        for code in inline_code(path.read_text(encoding="utf-8")):
            if re.match(r"spillway [a-z]", code):
                yield str(path.relative_to(ROOT)), mentioned(code)
    for path in SOURCES:
        for text in docstrings(path):
            found = re.findall(r"`(spillway [a-z][^`]*)`", text)
            found += [
                re.split(r"\s{2,}", each)[0] for each in re.findall(r"^ +(spillway [a-z].*)$", text, re.M)
            ]
            yield from ((str(path.relative_to(ROOT)), mentioned(each)) for each in found)


def docstrings(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef) and (
            text := ast.get_docstring(node, clean=False)
        ):
            yield text


def commands() -> Iterator[tuple[str, click.Command]]:
    with click.Context(cli.spillway) as context:
        for name in cli.COMMANDS:
            command = cli.spillway.get_command(context, name)
            assert command is not None
            yield name, command
            if isinstance(command, click.Group):
                yield from ((f"{name} {each}", found) for each, found in command.commands.items())


def lines_of_help() -> Iterator[tuple[str, str]]:
    yield from ((f"spillway {name} --help", line) for name, each in commands() for line in examples_of(each))
    yield from (("spillway --help", line) for line in examples_of(cli.spillway))


def examples_of(command: click.Command) -> list[str]:
    """The command lines in the help's epilog. Two spaces or a | end one."""
    found = re.findall(r"(?:^  |Example: |\$\(|\w+=\w+ )(spillway [a-z].*)$", command.epilog or "", re.M)
    return [re.split(r"\s{2,}| \| |\)", each)[0] for each in found]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Has the files that pages show: profiles are read when a command line is parsed."""
    for name, text in files().items():
        (tmp_path / name).write_text(text + "\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("lines", "least"),
    [(lines_of_blocks, 30), (lines_of_prose, 60), (lines_of_help, 25)],
    ids=["blocks", "prose", "help"],
)
def test_the_command_lines_are_accepted(lines: object, least: int, folder: Path) -> None:
    assert callable(lines)
    found = list(lines())
    refused = [f"{where}: {line}: {why}" for where, line in found if (why := refusal(line))]
    assert not refused, "\n".join(refused)
    assert len(found) >= least


def test_every_command_has_an_example() -> None:
    for name, command in commands():
        assert examples_of(command), f"spillway {name} --help has no example"


def test_a_line_with_an_unknown_option_or_command_is_refused(folder: Path) -> None:
    assert refusal("spillway run --budgets 20GiB -- python train.py")
    assert refusal("spillway dry-run h2000 -- python train.py")
    assert refusal("spillway trace shows FILE")
    assert refusal("spillway reports out")
    assert refusal("spillway run --budget 20GiB -- python train.py --any option") is None


def test_the_options_that_texts_name_exist() -> None:
    known = {
        name
        for _, each in commands()
        for param in each.params
        for name in (*param.opts, *param.secondary_opts)
    }
    scripts = "".join(
        path.read_text(encoding="utf-8")
        for folder in ("scripts", "bench", "examples", "python/spillway/demo", "docs/site")
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and path.suffix in ("", ".py")
    )
    named = {
        option: str(path.relative_to(ROOT))
        for path in TEXTS
        for code in inline_code(path.read_text(encoding="utf-8"))
        for option in re.findall(r"(?<![\w-])--[a-z][\w-]*", code)
    }
    unknown = {o: w for o, w in named.items() if o not in known | OF_OTHERS | {"--help"} and o not in scripts}
    assert not unknown, unknown
    assert len(named) >= 30


def test_profiles_are_readable(tmp_path: Path) -> None:
    blocks = [block for page in pages() for block in page.of("toml")]
    blocks += [block for page in pages() for block in page.blocks if (block.title or "").endswith(".toml")]
    assert len(blocks) >= 3
    for block in blocks:
        assert block.language == "toml"
        file = tmp_path / "mine.toml"
        file.write_text(block.text)
        assert profiles.read(str(file)).name in block.text
