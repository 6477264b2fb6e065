# SPDX-License-Identifier: Apache-2.0
"""Runs programs twice on the emulated GPU, in processes forked from one that has imported torch: plain, and
with managed storages that are offloaded at random between any two operators. Both print one line per case."""

import os
import pathlib
import re
import sys
from dataclasses import dataclass
from functools import cache

from launched import spillway

os.environ["PYTHONHASHSEED"] = "0"
PROGRAMS = pathlib.Path(__file__).parent / "programs"
LONG = os.environ.get("MODEL_STATE_LONG") == "1"
#: Schedules of the emulated GPU and seeds.
SEEDS = (("late", 1), ("shuffled:2", 2), ("shuffled:3", 3)) if LONG else (("late", 5),)


@dataclass(frozen=True)
class Run:
    status: int
    results: dict[str, str]  # by case: what it printed
    fetched: dict[str, int]  # by case: bytes
    output: str
    errors: str


def cases_of(program):
    """The names of a program's cases, which it does not have to be imported for."""
    return re.findall(r"^ *@case\n *def (\w+)", (PROGRAMS / program).read_text(), re.MULTILINE)


def both(program, seed, *arguments):
    """A plain run, and one of managed storages with one of SEEDS. Each runs once."""
    schedule, chaos = seed
    options = ("--check", "--budget=1GiB", f"--schedule={schedule}", f"--chaos={chaos}")
    return run(program, arguments), run(program, arguments, options)


@cache
def run(program, arguments=(), options=(), environment=()):
    done = spillway(
        "emulate", *options, "--", sys.executable, PROGRAMS / program, *arguments, **dict(environment)
    )
    lines = [line.split(" ", 2) for line in done.stdout.splitlines()]
    fetched = re.findall(r"^fetched: (\S+) (\d+)$", done.stderr, re.MULTILINE)
    return Run(
        done.returncode,
        {line[1]: line[2] for line in lines if line[0] == "case:"},
        {name: int(count) for name, count in fetched},
        done.stdout,
        done.stderr,
    )


def check_equal(name, plain, managed):
    assert name in plain.results, plain.output + plain.errors
    assert name in managed.results, managed.output + managed.errors
    assert not plain.results[name].startswith("raised"), plain.results[name]
    assert managed.results[name] == plain.results[name], managed.errors
    assert managed.fetched[name] > 0


def check_clean(plain, managed):
    """The programs have ended well, and without races."""
    assert plain.status == 0, plain.errors
    assert managed.errors.splitlines()[-1] == "spillway-check: 0 races", managed.errors
    assert managed.status == 0, managed.errors
