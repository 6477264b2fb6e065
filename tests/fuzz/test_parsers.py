# SPDX-License-Identifier: Apache-2.0
"""Mutations of real files: each is read, or refused by the parser's own error in one line, in a short time.

FUZZ_MUTATIONS is the number for each parser (default 300); FUZZ_SEED repeats a run."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import random
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mutations
import pytest
import records
from rich.console import Console
from spillway import preload_trace, profiles, trace
from spillway._load import glue
from spillway._plan_file import PlanFile
from spillway.report import terminal
from spillway.report.dry_run import section as dry_section
from spillway.report.html_page import page
from spillway.report.log import ReportError, read_log
from spillway.report.output import read, write
from spillway.report.plans import plans_of
from spillway.report.plans import section as plans_section
from spillway.report.runs import read_folder
from spillway.settings import LaunchError
from spillway.top import reading, view

MUTATIONS = int(os.environ.get("FUZZ_MUTATIONS", "300"))
SEED = int(os.environ.get("FUZZ_SEED", "0")) or random.SystemRandom().randrange(1, 2**32)
SECONDS = 20  # of this process's time, for one file
BLOCKED = 300  # seconds of the clock: on a busy machine a process may wait long for a core
UNPRINTABLE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\ud800-\udfff]")

Mutate = Callable[[random.Random], bytes]


@dataclasses.dataclass(frozen=True)
class Target:
    """`consume` reads the file that `mutate` made, shows all of it, and raises `error` alone. `header`: what
    its text has where not even the file's first part was accepted."""

    mutate: Mutate
    consume: Callable[[], Any]
    file: Path
    error: type[Exception]
    header: tuple[str, ...] = ()


def put(target: Target, rng: random.Random) -> None:
    """The mutated file; now and then what is no regular file, or none that can be read, in its place."""
    content, file = target.mutate(rng), target.file
    if file.is_dir() and not file.is_symlink():
        file.rmdir()
    else:
        file.unlink(missing_ok=True)
    if rng.random() > 0.02:
        file.write_bytes(content)
        file.chmod(0o600)
        return
    kind = rng.choice(("missing", "folder", "fifo", "loop", "device", "sparse"))
    if kind == "folder":
        file.mkdir()
    elif kind == "fifo":
        os.mkfifo(file, 0o600)
    elif kind in ("loop", "device"):
        file.symlink_to(file if kind == "loop" else "/dev/zero")
    elif kind == "sparse":
        with file.open("wb") as large:
            large.truncate(1 << 42)
        file.chmod(0o600)


def run(target: Target) -> None:
    rng = random.Random(SEED)
    refused_at_once = accepted = 0

    def stop(*_: object) -> None:
        raise TimeoutError(f"not read within {SECONDS} s")

    before = [signal.signal(number, stop) for number in (signal.SIGPROF, signal.SIGALRM)]
    try:
        for number in range(MUTATIONS):
            put(target, rng)
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            signal.alarm(BLOCKED)
            try:
                target.consume()
                accepted += 1
            except target.error as error:
                # A UnicodeError is a ValueError, but no parser's own.
                assert not isinstance(error, UnicodeError) and "\n" not in str(error), repr(error)
                refused_at_once += any(text in str(error) for text in target.header)
            except BaseException as error:
                raise AssertionError(
                    f"mutation {number} of FUZZ_SEED={SEED}: {error!r}; the file is {target.file}"
                ) from error
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)
                signal.alarm(0)
    finally:
        signal.signal(signal.SIGPROF, before[0])
        signal.signal(signal.SIGALRM, before[1])
    print(f"FUZZ_SEED={SEED}: {accepted} of {MUTATIONS} accepted, {refused_at_once} refused at once")
    assert refused_at_once < MUTATIONS / 2
    assert accepted > 0


@pytest.fixture(scope="session")
def layer() -> None:
    """Loads torch and the LibTorch layer, which no limit of one file's time may interrupt."""
    glue()


def log_of(seeds: Path, under: str = "report") -> Path:
    (path,) = (seeds / under).glob("*.spillway")
    return path


def printable(text: str) -> None:
    assert not UNPRINTABLE.search(text)


def test_report_logs(seeds, tmp_path):
    lines = [json.loads(line) for line in log_of(seeds).read_text().splitlines()]
    folder = tmp_path / "out"
    folder.mkdir()

    def mutate(rng: random.Random) -> bytes:
        """Beside the file, now and then, the log of another rank or of an earlier run."""
        beside = folder / "8-2.spillway"
        beside.unlink(missing_ok=True)
        if rng.random() < 0.3:
            about = dict(lines[0])
            for name, values in (
                ("rank", ("1", "0", 7, "x", None)),
                ("started", (0, about["started"] - 1e6, about["started"] + 1e6, about["started"])),
                ("launch", ("other", about.get("launch"), None)),
                ("spillway", (about["spillway"], about["spillway"], "9.9")),
            ):
                about[name] = rng.choice(values)
            few = [about, *lines[1:20]]
            whole = "\n".join(map(mutations.dumped, few)).encode() + b"\n"
            beside.write_bytes(mutations.change_lines(few, rng, 10) if rng.random() < 0.2 else whole)
        return mutations.change_lines(lines, rng)

    def consume() -> None:
        with contextlib.suppress(reading.TopError):
            reading.find(str(folder))
        digests = read(folder)
        write(digests, tmp_path / "report.html")
        text = (tmp_path / "report.html").read_text()
        assert text.count("<script>") == 1
        printable(text)
        console = Console(width=200, file=io.StringIO())
        terminal.show(digests, console)
        printable(console.file.getvalue())

    file = folder / "7-1.spillway"
    run(Target(mutate, consume, file, ReportError, ("is no log",)))


def test_plans_of_a_report(seeds, tmp_path):
    (path,) = (seeds / "report").glob("*.plans.json")
    document = json.loads(path.read_text())
    (tmp_path / "7-1.spillway").write_bytes(log_of(seeds).read_bytes())
    (log,) = read_folder(tmp_path)

    def consume() -> None:
        for plan in plans_of(log):
            printable(str(plan))
        printable(plans_section(log))

    file = tmp_path / "7-1.plans.json"
    run(Target(lambda rng: mutations.change_document(document, rng), consume, file, ReportError))


def test_answers_of_dry_runs(seeds, tmp_path):
    (path,) = (seeds / "dry/report").glob("*.dry.json")
    document = json.loads(path.read_text())
    (tmp_path / "7-1.spillway").write_bytes(log_of(seeds, "dry/report").read_bytes())
    log = read_log(tmp_path / "7-1.spillway")
    file = tmp_path / "7-1.dry.json"

    def consume() -> None:
        printable(dry_section(log))

    run(Target(lambda rng: mutations.change_document(document, rng), consume, file, ReportError))


def test_plan_files(seeds, layer, tmp_path, monkeypatch):
    document = json.loads((seeds / "plans").read_text())
    file = tmp_path / "plans"
    monkeypatch.setattr(PlanFile, "_where", lambda _: document["where"])
    monkeypatch.delenv("RANK", raising=False)

    taken = 0

    def consume() -> None:
        nonlocal taken
        plans = PlanFile(file, "fuzz")
        plans.read()
        taken += bool(plans._others([]))

    run(Target(lambda rng: mutations.change_document(document, rng), consume, file, ValueError))
    assert taken > 0  # steps were looked at, and not only the file's first fields


def test_statistics_pages(seeds, tmp_path):
    content = (seeds / "page").read_bytes()
    console = Console(width=200, file=io.StringIO())
    file = tmp_path / "page"

    def consume() -> None:
        seen = reading.read(file)
        console.file = io.StringIO()
        console.print(view.picture([seen], [seen]))
        printable(console.file.getvalue())
        json.dumps(seen.as_dict())

    header = ("statistics page", "layout", "bytes instead of")

    run(Target(lambda rng: records.change_page(content, rng), consume, file, reading.TopError, header))


def test_traces_of_calls(seeds, tmp_path):
    content = (seeds / "calls").read_bytes()
    file = tmp_path / "calls"

    def consume() -> None:
        if not preload_trace.is_preload_trace(file):
            raise ValueError("is not a trace of CUDA calls")
        summary = preload_trace.summary(preload_trace.read_preload_trace(file))
        printable(json.dumps(summary, indent=1))

    header = ("is not a trace of CUDA calls", "has format", "calls of")
    run(Target(lambda rng: records.change_calls(content, rng), consume, file, ValueError, header))


def test_traces_of_allocations(seeds, layer, tmp_path):
    content = (seeds / "trace").read_bytes()
    file = tmp_path / "trace"

    def consume() -> None:
        json.dumps(trace.summary(trace.read_trace(file)))

    run(Target(lambda rng: mutations.change_bytes(content, rng, 32), consume, file, ValueError, ("byte 0",)))


def test_profiles(tmp_path):
    content = (profiles.FOLDER / "h100.toml").read_bytes()
    document = profiles._load("h100")
    file = tmp_path / "mine.toml"

    def consume() -> None:
        printable(repr(profiles.read(str(file)).settings(True)))

    def mutate(rng: random.Random) -> bytes:
        if rng.random() < 0.3:
            return mutations.change_bytes(content, rng)
        return mutations.change_table(document, rng)

    run(Target(mutate, consume, file, LaunchError))


def test_the_page_of_an_unchanged_log_is_made(seeds, tmp_path):
    """So that the fuzzers mutate what a report accepts."""
    (tmp_path / "7-1.spillway").write_bytes(log_of(seeds).read_bytes())
    assert "Copies against compute" in page(read(tmp_path))
