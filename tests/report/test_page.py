# SPDX-License-Identifier: Apache-2.0
"""The page, as its reader and a browser find it."""

from __future__ import annotations

import io
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
import synthetic
from browser import drawn
from rich.console import Console
from spillway.report import terminal, words
from spillway.report.html_page import page as page_of
from spillway.report.log import ReportError
from spillway.report.output import read, write

VOID = {"meta", "i", "br", "line", "rect", "circle", "polygon", "polyline"}


class Text(HTMLParser):
    """What a page shows, and whether its elements are closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.addresses += [value for name, value in attrs if name in ("src", "href", "action", "xlink:href")]
        if tag not in ("meta", "link", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag

    def handle_data(self, data):
        if not {"style", "script"} & set(self.open):
            self.words.append(data)


def parse(path: Path) -> Text:
    text = Text()
    text.feed(path.read_text())
    text.close()
    return text


@pytest.fixture
def page(tmp_path: Path) -> Path:
    hostile = [["tag", 5, "<script>alert(1)</script>"] if line == ["tag", 5, "job"] else line
               for line in synthetic.LINES]  # fmt: skip
    synthetic.write(tmp_path / "7-1.spillway", hostile, command=["python", "a&b.py", "<i>"])
    write(read(tmp_path), tmp_path / "report.html")
    return tmp_path / "report.html"


def test_elements_are_closed_and_nothing_is_fetched(page):
    text = parse(page)
    assert text.open == []
    assert text.addresses == []
    assert not re.search(r"https?://|@import|url\(", page.read_text())


def test_names_of_the_job_are_text(page):
    assert "<script>alert" not in page.read_text()
    assert "<script>alert(1)</script>" in " ".join(parse(page).words)


def test_the_files_are_the_user_s_alone(page):
    for name in ("report.html", "trace.json"):
        assert page.with_name(name).stat().st_mode & 0o777 == 0o600


def test_it_states_that_figures_are_emulated_and_that_a_run_is_unfinished(page, tmp_path):
    assert "This run used the emulated GPU" in page.read_text()
    assert "This run is unfinished" not in page.read_text()
    other = tmp_path / "other"
    synthetic.write(other / "7-1.spillway", done=False, emulated=False, clock="device")
    write(read(other), other / "report.html")
    assert "This run used the emulated GPU" not in (other / "report.html").read_text()
    assert "This run is unfinished" in (other / "report.html").read_text()


def test_a_log_without_any_event_makes_a_page(tmp_path):
    synthetic.write(tmp_path / "7-1.spillway", [], done=False)
    write(read(tmp_path), tmp_path / "report.html")
    assert "Nothing was copied." in " ".join(parse(tmp_path / "report.html").words)


@pytest.mark.parametrize("word", ["bytes", "devices", "pinned_peak", "refused", "command"])
def test_a_log_that_lacks_a_part_is_one_line_and_no_page(tmp_path, word):
    path = synthetic.write(tmp_path / "7-1.spillway")
    path.write_text(path.read_text().replace(f'"{word}"', '"else"'))
    with pytest.raises(ReportError, match=f"{tmp_path}.*: is damaged") as caught:
        write(read(tmp_path), tmp_path / "report.html")
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == [path]


def test_page_and_terminal_say_the_main_reason_why_something_stayed(tmp_path):
    stayed = {"tiny": {"storages": 2, "bytes": 20}, "parameter": {"storages": 1, "bytes": 3000}}
    step = ["tagstep", 199, 0, 5, {"offloadable": 7000, "offloaded": 4000, "copied": 4000, "fetched": 4000,
                                   "skipped": stayed}]  # fmt: skip
    lines = [step if line[0] == "tagstep" else line for line in synthetic.LINES]
    synthetic.write(tmp_path / "7-1.spillway", lines)
    each = read(tmp_path)[0]
    said = "Over all steps, 2.9 KiB of saved tensors stayed on the device; the main "
    said += 'reason, for 2.9 KiB, is "parameters and their views: on the device anyway".'
    assert words.facts(each)[-1] == said
    assert "3.9 KiB of 6.8 KiB were offloaded." in page_of([each])


def test_stalls_that_belong_to_no_region_are_in_the_terminal_s_table_too(tmp_path):
    stall = ["wait", 112, 2000, 3000, 0, synthetic.COMPUTE, synthetic.OUT, 0, 0]
    synthetic.write(tmp_path / "7-1.spillway", [*synthetic.LINES, stall])
    console = Console(width=200, file=io.StringIO(), record=True)
    terminal.show(read(tmp_path), console)
    rows = [re.findall(r"[^│┃]+", line) for line in console.export_text().splitlines() if "│" in line]
    assert [[cell.strip() for cell in row] for row in rows] == [
        ["(no tag)", "–", "–", "–", "1", "1.0 µs"],
        ["job", "6.8 KiB", "3.9 KiB", "57.1 %", "1", "1.0 µs"],
    ]


def test_a_browser_draws_it_without_a_complaint(tmp_path):
    lines = [*synthetic.LINES, ["mark", 290, 12000, 12000, 0, synthetic.COMPUTE, 0, 0, 0],
             ["step", 290, 2, synthetic.STATE]]  # fmt: skip
    synthetic.write(tmp_path / "7-1.spillway", lines)
    write(read(tmp_path), tmp_path / "report.html")
    said = drawn(tmp_path / "report.html", tmp_path)
    assert said == {"problems": [], "charts": 2, "inside": True, "first": "1", "then": "0", "fits": True}
