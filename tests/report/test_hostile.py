# SPDX-License-Identifier: Apache-2.0
"""Files and names that no job writes: each command prints one line, does not block, and escapes names."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import synthetic
from rich.console import Console
from spillway import cli
from spillway.report import terminal
from spillway.report.log import ReportError
from spillway.report.output import read, write
from spillway.report.plans import plans_of
from spillway.report.runs import read_folder
from spillway.top import reading, view

POINT = {
    **{"budget": 10, "peak": 9, "kept": 5, "offloaded": 3, "recomputed": 1, "seconds": 0.2, "compute": 0.1},
    **{"recompute": 0.0, "stall_out": 0.0, "stall_in": 0.0, "bound": 0.1, "limit": "compute"},
}
PLAN = {
    **{"tag": "job", "device": 0, "chosen": POINT, "curve": [POINT | {"budget": 20}], "storages": 3},
    **{"link_out": 1e9, "link_in": 1e9, "taken": None},
}

# --- Files that are not what they should be


@contextlib.contextmanager
def at_most(seconds: int) -> Iterator[None]:
    """Interrupts what blocks."""

    def stop(*_: object) -> None:
        raise AssertionError(f"it takes more than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def bound_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        here = os.getcwd()
        os.chdir(path.parent)  # the address of a socket has 108 bytes
        try:
            made.bind(path.name)
        finally:
            os.chdir(here)


def sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 43)


KINDS: dict[str, Callable[[Path], object]] = {
    "FIFO": os.mkfifo,
    "endless device": lambda path: path.symlink_to("/dev/zero"),
    "folder": Path.mkdir,
    "socket": bound_socket,
    "link to itself": lambda path: path.symlink_to(path),
    "8 TiB": sparse,
    "no text": lambda path: path.write_bytes(b"\xff\xfe" * 999),
    "nested lists": lambda path: path.write_text("[" * 200_000),
    "nested tables": lambda path: path.write_text('{"a":' * 200_000 + "1" + "}" * 200_000),
    "nested TOML": lambda path: path.write_text("a = " + "[" * 200_000),
    "number of 5000 digits": lambda path: path.write_text(f'{{"plans": {"9" * 5000}}}\n'),
    "integer without end": lambda path: path.write_text("memory = " + "9" * 5000),
}
LOG = "7-1.spillway"
# What is read from a folder "out", by which command.
PLACES: dict[str, tuple[str, ...]] = {
    f"out/{LOG}": ("report", "explain", "top"),
    "out/7-1.plans.json": ("report", "explain"),
    "out/7-1.dry.json": ("report",),
    "trace": ("trace", "show", "trace"),
    "mine.toml": ("emulate", "mine.toml", "--", "true"),
    "plans": ("emulate", "--budget", "1GiB", "--plans", "plans", "--", "true"),
}
READERS = [
    (place, command)
    for place, words in PLACES.items()
    for command in ([(word, "out") for word in words] if place.startswith("out") else [words])
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("place", "command"), READERS, ids=lambda value: value if isinstance(value, str) else value[0]
)
def test_it_is_one_line_and_does_not_block(place, command, kind, tmp_path, monkeypatch, capfd):
    if place == "plans" and kind not in ("FIFO", "endless device", "folder", "socket", "link to itself"):
        pytest.skip("the launcher does not read the content")
    monkeypatch.chdir(tmp_path)
    synthetic.write(Path("out", LOG))
    Path(place).unlink(missing_ok=True)
    KINDS[kind](tmp_path / place)
    monkeypatch.setattr(os, "execve", lambda *_: pytest.fail("the command is started"))
    with at_most(30):
        status = cli.main(command)
    said = capfd.readouterr()
    assert "Traceback" not in said.err
    # Without a readable answer of a dry run the page has no part for it.
    assert (status, said.err.count("\n")) == ((0, 0) if "dry.json" in place else (2, 1)), said.err
    if status and command[0] != "top":
        assert place in said.err


def test_a_rank_of_5000_digits_is_no_rank(tmp_path):
    synthetic.write(tmp_path / LOG, rank="9" * 5000)
    synthetic.write(tmp_path / "8-1.spillway", rank="1", process=8)
    assert [log.about["process"] for log in read_folder(tmp_path)] == [7, 8]


@pytest.mark.parametrize("target", ["9" * 5000, "x" * 5000, "a\nb\x1b[31m"])
def test_a_target_that_is_none_is_one_line(target, capfd):
    assert cli.main(["top", target, "--once"]) == 2
    said = capfd.readouterr().err
    assert said.count("\n") == 1 and "\x1b" not in said


# --- Statistics pages


def statistics_page(path: Path, devices: int = 1, tags: int = 1, name: bytes = b"job") -> Path:
    counts = (1, devices, tags, 1, 0, 0, 0)
    head = reading._HEAD.pack(reading.MAGIC, reading.VERSION, reading.SIZE, 7, 1, 2, 10**9, 1, 3, *counts)
    body = reading._DEVICE.pack(*range(20)) * 8 + reading._TAG.pack(name, 1, 2, 3, 4) * 24
    path.write_bytes(head + body)
    path.chmod(0o600)
    return path


@pytest.mark.parametrize(("devices", "tags"), [(9, 1), (1, 25), (2**32 - 1, 1), (1, 2**32 - 1)])
def test_counts_beyond_the_page_are_one_line(tmp_path, devices, tags):
    page = statistics_page(tmp_path / "page", devices, tags)
    with pytest.raises(reading.TopError, match=rf"\b{devices} devices and {tags} tags") as caught:
        reading.read(page)
    assert "\n" not in str(caught.value)
    assert len(reading.read(statistics_page(tmp_path / "full", 8, 24)).tags) == 24


# --- Names that a terminal, rich or a browser would take for more than text

NAMES = {
    "a[b]": "a[b]",
    "p[/p]": "p[/p]",
    "[red]x[/red]": "[red]x[/red]",
    "[link=file:///etc]x": "[link=file:///etc]x",
    "a\x1b[31mb": "a\\x1b[31mb",
    "a\x9b31mb": "a\\x9b31mb",
    "a\rb\nc\bd": "a\\x0db\\x0ac\\x08d",
    "a\u202eb": "a\\u202eb",
    "<script>x</script>": "<script>x</script>",
    '"><img src=x>': '"><img src=x>',
    "\udcff\ud800": "\\xff\\ud800",
}


def plain(text: str) -> str:
    """Without the line breaks that a table puts in."""
    return re.sub(r"\s|│|┃", "", text)


@pytest.mark.parametrize("name", NAMES)
def test_top_shows_names_as_they_are(tmp_path, name):
    page = statistics_page(tmp_path / "page", name=name.encode("utf-8", "surrogatepass"))
    console = Console(width=200, file=io.StringIO(), force_terminal=True, color_system=None)
    seen = reading.read(page)
    console.print(view.picture([seen], [seen]))
    shown = NAMES[name] if name != "\udcff\ud800" else "�" * 6
    assert plain(shown) in plain(console.file.getvalue())


def hostile_folder(folder: Path, name: str) -> Path:
    """A report in which each text is `name`."""
    named: dict[str, Callable[[list[object]], list[object]]] = {
        "tag": lambda line: [*line[:2], f"{name}/{line[1]}"],
        "name": lambda line: [*line[:2], name],
        "from": lambda line: [*line[:2], name, f"/jobs/{name} {name}"],
    }
    lines = [named.get(line[0], list)(line) for line in synthetic.OPERATORS_OF_A_RUN]
    stayed = {name: {"storages": 2, "bytes": 20}}
    lines += [
        [
            "tagstep",
            199,
            0,
            5,
            {"offloadable": 7, "offloaded": 4, "copied": 4, "fetched": 4, "skipped": stayed},
        ]
    ]
    state = {"devices": {"0": synthetic.DEVICE | {"refused": {name: 2}}}}
    lines += [["last", 200, 1, state]]
    about = {"rank": name, "spillway": name, "torch": name, "allocator": name, "command": ["python", name]}
    path = synthetic.write(folder / LOG, lines, **about, devices=[{"name": name, "bytes": 1}])
    plan = PLAN | {"tag": name}
    path.with_suffix(".plans.json").write_text(json.dumps({"spillway_explanations": 2, "plans": [plan]}))
    return folder


@pytest.mark.parametrize("name", NAMES)
def test_a_report_shows_names_as_they_are(tmp_path, name):
    digests = read(hostile_folder(tmp_path, name))
    console = Console(width=2000, file=io.StringIO(), force_terminal=True, color_system=None)
    terminal.show(digests, console)
    text = console.file.getvalue()
    assert f"rank {NAMES[name]}" in text and f"region {NAMES[name]!r}" in text
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\ud800-\udfff]", text)
    write(digests, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert page.count("<script>") == 1 and "<img" not in page
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", page)
    json.loads((tmp_path / "trace.json").read_text())


@pytest.mark.parametrize("name", NAMES)
def test_explain_and_errors_show_names_as_they_are(tmp_path, name, capfd):
    folder = hostile_folder(tmp_path / "out", name)
    for command in (
        ("explain", str(folder)),
        ("report", str(tmp_path / name.replace("/", "-").replace("\ud800", ""))),
    ):
        cli.main(command)
        said = "".join(capfd.readouterr())
        assert said and not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", said)


# --- The page


def test_only_the_page_s_own_script_and_style_may_run(tmp_path):
    synthetic.write(tmp_path / LOG)
    write(read(tmp_path), tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    policy = re.search('Content-Security-Policy" content="([^"]*)"', page)
    assert policy and "unsafe" not in policy[1] and policy[1].startswith("default-src 'none'; ")
    assert page.count("<script>") == 1 and page.count("<style>") == 1
    assert not re.search(r"<[^>]* (style|on[a-z]+)=", page)


@pytest.mark.parametrize("device", ["<script>alert(1)</script>", [], None, 1.5, -1, 10**30, True])
def test_a_device_that_is_no_number_is_one_line(tmp_path, device):
    synthetic.write(tmp_path / LOG)
    (tmp_path / "7-1.plans.json").write_text(
        json.dumps({"spillway_explanations": 2, "plans": [PLAN | {"device": device}]})
    )
    with pytest.raises(ReportError, match=r"7-1\.plans\.json: is damaged") as caught:
        plans_of(*read_folder(tmp_path))
    assert "\n" not in str(caught.value)
    lines = [[*line[:5], device] if line[0] == "new" else line for line in synthetic.LINES]
    if type(device) is not int:
        with pytest.raises(ReportError, match=r"line 4\b"):
            read_folder(synthetic.write(tmp_path / "other" / LOG, lines).parent)


@pytest.mark.parametrize("field", [*POINT, *PLAN])
@pytest.mark.parametrize("value", ["<i>", None, [], {}, -1, 1 << 80, 1e300, True])
def test_a_plan_with_a_wrong_value_is_one_line_or_none(tmp_path, field, value):
    synthetic.write(tmp_path / LOG)
    point = POINT | ({field: value} if field in POINT else {})
    plan = PLAN | {"chosen": point} | ({field: value} if field in PLAN else {})
    (tmp_path / "7-1.plans.json").write_text(json.dumps({"spillway_explanations": 2, "plans": [plan]}))
    if (field, value) in (("taken", None), ("tag", "<i>"), ("curve", []), ("curve", {})):
        return
    with pytest.raises(ReportError, match=r"7-1\.plans\.json: is damaged"):
        plans_of(*read_folder(tmp_path))
