# SPDX-License-Identifier: Apache-2.0
"""The `spillway` command: what it sets, what it refuses, and that the command's end is its own."""

from __future__ import annotations

import os
import pty
import re
import select
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import assert_refused, call, clean_environment, seen_by_command, spillway
from spillway import launch
from spillway.cli import COMMANDS
from spillway.commands.options import DRY_RUN, EMULATED
from spillway.settings import JOB, SETTINGS


@pytest.mark.parametrize(
    ("command", "before", "after"),
    [
        ("emulate", "libm.so.6", f"{launch.SHIM}:{launch.EMULATOR}:libm.so.6"),
        (
            "emulate",
            f" libm.so.6 {launch.EMULATOR}:libc.so.6",
            f"{launch.SHIM}:{launch.EMULATOR}:libm.so.6:libc.so.6",
        ),
        ("emulate", f"{launch.SHIM}:{launch.EMULATOR}", f"{launch.SHIM}:{launch.EMULATOR}"),
        ("run", "", f"{launch.SHIM}"),
    ],
)
def test_the_shim_comes_before_the_emulator_and_both_before_the_rest(
    command: str, before: str, after: str
) -> None:
    env = seen_by_command(command, LD_PRELOAD=before, SPILLWAY_DISABLE="1")  # so that it needs no GPU
    assert (env["LD_PRELOAD"], env.get("SPILLWAY_EMULATE")) == (after, "1" if command == "emulate" else None)


def test_the_package_s_own_tree_is_first_on_the_path() -> None:
    env = seen_by_command("emulate", PYTHONPATH=f"elsewhere{os.pathsep}{launch.PACKAGE.parent}")
    assert env["PYTHONPATH"] == f"{launch.PACKAGE.parent}{os.pathsep}elsewhere"


def test_the_command_s_arguments_are_its_own() -> None:
    result = spillway(
        *("emulate", "--", sys.executable, "-c", "import sys; print(sys.argv[1:])"),
        *("--emulate", "--", "-x"),
    )
    assert result.stdout == "['--emulate', '--', '-x']\n"


def test_the_exit_status_is_the_command_s() -> None:
    assert spillway("emulate", "--", sys.executable, "-c", "raise SystemExit(41)").returncode == 41


def test_a_signal_reaches_the_command() -> None:
    wait = "import os, signal; print(os.getpid(), flush=True); signal.pause()"
    with subprocess.Popen(
        [sys.executable, "-m", "spillway", "emulate", "--", sys.executable, "-c", wait],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert int(process.stdout.readline()) == process.pid  # the command has taken the process over
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == -signal.SIGTERM


COUNT_INTERRUPTS = """
import select, signal, socket, time
here, there = socket.socketpair()
there.setblocking(False)
signal.signal(signal.SIGINT, lambda *_: None)
signal.set_wakeup_fd(there.fileno())  # a byte for each signal, though two come before Python looks
print("ready", flush=True)
select.select([here], [], [], 60)
time.sleep(0.5)  # for another one
print(len(here.recv(100)), "interrupts", flush=True)
"""


def test_the_terminal_s_interrupt_reaches_a_checked_command_once() -> None:
    process, terminal = pty.fork()
    if process == 0:
        run = [sys.executable, "-m", "spillway", "emulate", "--check", "--"]
        os.execv(sys.executable, [*run, sys.executable, "-c", COUNT_INTERRUPTS])
    with open(terminal, "r+b", buffering=0) as screen:
        seen = b""
        while b"ready" not in seen:
            seen += screen.read(100)
        screen.write(b"\3")
        while b"races" not in seen:
            seen += screen.read(100)
        status = os.waitpid(process, 0)[1]  # a terminal that closes sends SIGHUP to what is left
    assert os.waitstatus_to_exitcode(status) == 0
    assert b"1 interrupts" in seen, seen


WAIT = """
import os, sys
print(os.getpid(), flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize(
    "options",
    [("emulate", "--check"), ("dry-run",), ("dry-run", "--compare", "plain,recompute")],
    ids=lambda options: options[-1],
)
def test_a_command_dies_with_a_launcher_that_is_killed(options: tuple[str, ...], tmp_path: Path) -> None:
    """And what the launcher left is removed by the next one."""
    run = [sys.executable, "-m", "spillway", *options, "--", sys.executable, "-c", WAIT]
    environment = clean_environment() | {"TMPDIR": str(tmp_path)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(run, env=environment, **pipes) as launcher:
        command = os.pidfd_open(int(launcher.stdout.readline()))
        launcher.kill()
        assert launcher.wait() == -signal.SIGKILL
        ended, _, _ = select.select([command], [], [], 60)  # its stdin is still open
        os.close(command)
    assert ended
    assert len(list(tmp_path.iterdir())) == 1
    last = spillway("emulate", "--check", "--", "true", TMPDIR=str(tmp_path))
    assert last.returncode == 0, last.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "inherited", "said"),
    [
        (["emulate", "--budget", "lots"], {}, "spillway emulate: --budget=lots: expected a size"),
        (["run", "--budget"], {}, "spillway run: option '--budget' requires an argument"),
        (["emulate", "--budget"], {}, "spillway emulate: option '--budget' requires an argument"),
        (
            ["run"],
            {"SPILLWAY_BUDGT": "1GiB"},
            "spillway run: SPILLWAY_BUDGT: unknown setting. ",
        ),
    ],
)
def test_an_invalid_setting_is_one_line_and_starts_nothing(
    tmp_path: Path, arguments: list[str], inherited: dict[str, str], said: str
) -> None:
    started = tmp_path / "started"
    assert_refused(spillway(*arguments, "--", "touch", started, **inherited), said)
    assert not started.exists()


@pytest.mark.parametrize(
    ("option", "command"),
    [
        ("--emulate", "emulate"),
        ("--shape-only", "dry-run"),
        *((setting.flag, "emulate") for setting in SETTINGS if setting.option in EMULATED),
        *((flag, "dry-run") for flag in ("--assume", "--compare", "--json", "--steps", "--samples-per-step")),
    ],
)
def test_run_names_the_command_that_has_an_option(option: str, command: str) -> None:
    result = call("run", option, "--", "true")
    assert_refused(result, f"spillway run: {option}: ")
    assert result.stderr.endswith(f" Use spillway {command} (see spillway {command} --help).\n")


@pytest.mark.parametrize("option", ["--check", "--poison", "--schedule", "--rng", "--clock"])
def test_a_dry_run_names_the_command_that_has_an_option(option: str) -> None:
    value = {"--schedule": ["late"], "--rng": ["cpu"], "--clock": ["real"]}.get(option, [])
    result = call("dry-run", option, *value, "--", "true")
    assert_refused(result, f"spillway dry-run: {option}: ")
    assert result.stderr.endswith(f". Use spillway emulate {option}.\n")


def test_a_command_that_is_not_there_is_127() -> None:
    result = call("emulate", "--", "no-such-command")
    assert result.returncode == 127
    assert result.stderr.startswith("spillway emulate: no-such-command: ")


def test_a_command_that_cannot_be_run_is_126(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("words")
    result = call("emulate", "--", text)
    assert result.returncode == 126
    assert result.stderr.startswith(f"spillway emulate: {text}: ")


JOB_COMMANDS = ("run", "emulate", "dry-run")


def flags_of(page: str) -> set[str]:
    return set(re.findall(r"^  (--[a-z0-9-]+)", page, re.MULTILINE))


@pytest.mark.parametrize("command", JOB_COMMANDS)
def test_help_fits_a_screen_and_ends_with_three_examples(command: str) -> None:
    lines = call(command, "--help", COLUMNS="80").stdout.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    assert lines[-4].strip() == "Examples:"
    assert all(re.match(rf" +spillway {command} .*-- ", line) for line in lines[-3:])


@pytest.mark.parametrize("command", JOB_COMMANDS)
def test_examples_of_the_help_are_accepted(command: str) -> None:
    for line in call(command, "--help").stdout.splitlines()[-3:]:
        options = shlex.split(line)[2:]
        given = options[: options.index("--")]
        result = call(command, *given, "--", "true", SPILLWAY_DISABLE="1")
        assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("command", ["emulate", "dry-run"])
def test_commands_on_the_emulated_gpu_have_all_options_of_run(command: str) -> None:
    for setting in JOB:
        completed = call(
            _SPILLWAY_COMPLETE="bash_complete",
            COMP_WORDS=f"spillway {command} {setting.flag}",
            COMP_CWORD="2",
        )
        assert f"plain,{setting.flag}" in completed.stdout.split()


def test_help_lists_the_options_of_its_command_by_group() -> None:
    pages = {command: call(command, "--help").stdout for command in JOB_COMMANDS}
    flags = {command: flags_of(page) for command, page in pages.items()}
    job = {setting.flag for setting in JOB}
    assert flags["run"] == job
    assert flags["emulate"] == {each.flag for each in SETTINGS if each.option in EMULATED}
    asked = {"--samples-per-step", "--steps", "--compare", "--json"}
    assert flags["dry-run"] == asked | {each.flag for each in SETTINGS if each.option in DRY_RUN}
    refers = {command for command, page in pages.items() if "\n  All options of spillway run, " in page}
    assert refers == {"emulate", "dry-run"}
    headings = {command: re.findall(r"^(\w.*):$", page, re.MULTILINE) for command, page in pages.items()}
    assert headings == {
        "run": ["Memory", "Report"],
        "emulate": ["Emulated GPU", "Virtual clock", "Debugging"],
        "dry-run": ["Dry run", "Emulated GPU", "Virtual clock"],
    }


def test_the_help_groups_the_commands_and_shows_three_examples() -> None:
    page = call("--help", COLUMNS="80").stdout
    assert len(page.splitlines()) <= 40
    headings = re.findall(r"^(\w.*):$", page, re.MULTILINE)
    assert headings == ["Options", "Run", "Without a GPU", "Inspect", "Check and measure"]
    listed = re.findall(r"^  ([a-z][a-z-]+)  +[A-Z].*\.$", page, re.MULTILINE)
    assert listed == list(COMMANDS)
    examples = page[page.index("Examples:") : page.index("Completion")]
    assert len(re.findall(r"^ +spillway ", examples, re.MULTILINE)) == 3
    assert all(f"_SPILLWAY_COMPLETE={shell}_source" in page for shell in ("bash", "zsh", "fish"))


@pytest.mark.parametrize("command", ["emulate", "dry-run"])
def test_the_help_states_what_happens_without_a_profile(command: str) -> None:
    page = " ".join(call(command, "--help").stdout.split())
    assert re.search("Without PROFILE .*8 GiB", page)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_examples_and_a_short_option(command: str) -> None:
    short, long = call(command, "-h"), call(command, "--help")
    assert (short.returncode, short.stdout) == (0, long.stdout)
    assert re.search(rf"Usage: spillway {command}.*Examples?:\s.*spillway {command}", long.stdout, re.DOTALL)


@pytest.mark.parametrize(
    ("begun", "offered"),
    [
        ("run --rati", "plain,--ratio"),
        ("bench copy o", "plain,overlap"),
        ("bench --emulate h100 al", "plain,alloc"),
        ("emulate h100 --sched", "plain,--schedule"),
        ("emulate h", "plain,h100 plain,h200"),
        ("dry-run --ratio 0.5 h", "plain,h100 plain,h200"),
        ("env --emulate a100-4", "plain,a100-40g"),
        ("emulate mi", "file,mi"),  # a profile of one's own
        ("emulate h100 -- python tr", "file,tr"),
        ("dry-run -- h", "file,h"),
        ("run --ratio 0.5 -- h", "file,h"),
    ],
)
def test_the_shell_completes_commands_options_and_values(begun: str, offered: str) -> None:
    words = f"spillway {begun}"
    completed = call(_SPILLWAY_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=str(words.count(" ")))
    assert completed.stdout.split() == offered.split()


def test_env_prints_what_a_shell_can_evaluate() -> None:
    result = call("env", "--emulate", "--memory", "2GiB")
    assert result.returncode == 0, result.stderr
    assert "export SPILLWAY_EMULATE=1\n" in result.stdout
    assert "export SPILLWAY_EMULATE_MEMORY=2GiB\n" in result.stdout
    assert f"export LD_PRELOAD={launch.SHIM}:{launch.EMULATOR}\n" in result.stdout


def test_the_version_is_the_package_s() -> None:
    assert call("--version").stdout == "spillway 0.1.0\n"


def test_starting_imports_no_torch() -> None:
    code = "import sys, spillway.cli; raise SystemExit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
