# SPDX-License-Identifier: Apache-2.0
"""Device bytes and offloaded bytes over time, from synthetic logs with known contents."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
import synthetic
from rich.console import Console
from spillway.report import terminal, words
from spillway.report.digests import digest
from spillway.report.html_page import page
from spillway.report.log import read_log
from spillway.report.memory import Usage, usage_by_device


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return synthetic.write(tmp_path / "out" / "7-1.spillway")


def usage_of(tmp_path: Path, lines: list) -> Usage:
    return usage_by_device(read_log(synthetic.write(tmp_path / "7-1.spillway", lines)))[0]


def test_the_peak_is_of_what_was_on_the_device(path):
    usage = usage_by_device(read_log(path))[0]
    assert usage.peak.device == 4000
    assert usage.peak.tags == {"activation/layers.0": 4000}


def test_the_peak_without_offload_adds_the_bytes_offloaded_at_that_event(path):
    usage = usage_by_device(read_log(path))[0]
    assert (usage.peak_without.device, usage.peak_without.offloaded) == (3000, 4000)
    assert usage.peak_without.offloaded_tags == {"job": 4000}


def test_what_is_fetched_is_not_counted_twice(path):
    usage = usage_by_device(read_log(path))[0]
    assert usage.peak_without.without == 7000  # 8000 with block 3 and what it fetches
    assert usage.samples[-1][1:3] == (0, 0)


def test_a_storage_that_was_never_released_is_not_offloaded(tmp_path):
    lines = [line for line in synthetic.LINES if line[:3] not in (["free", 120, 1],)]
    usage = usage_of(tmp_path, lines)
    assert usage.peak_without.without == usage.peak.device


TAGS = [["tag", 5, "job"], ["tag", 6, "activation/layers.0"]]


def test_a_block_that_is_tagged_again_changes_tags_and_nothing_else(tmp_path):
    usage = usage_of(
        tmp_path,
        [
            *TAGS,
            ["new", 100, 1, 4000, 6, 0],
            ["retag", 110, 1, 5],
            ["new", 120, 2, 1000, 6, 0],
            ["free", 130, 1],
            ["new", 140, 3, 500, 5, 0],
            ["retag", 150, 99, 5],  # of a block that lived before the log began
        ],
    )
    assert usage.samples == [
        (100, 4000, 0, {"activation": 4000}),
        (110, 4000, 0, {"job": 4000}),
        (120, 5000, 0, {"job": 4000, "activation": 1000}),
        (130, 1000, 0, {"activation": 1000}),
        (140, 1500, 0, {"activation": 1000, "job": 500}),
    ]
    assert (usage.peak.device, usage.peak.tags) == (5000, {"job": 4000, "activation/layers.0": 1000})
    assert usage.tag_peaks == {"activation/layers.0": 4000, "job": 4000}


def test_a_fetched_storage_is_offloaded_again_when_its_new_block_is_freed(tmp_path):
    usage = usage_of(
        tmp_path,
        [
            *TAGS,
            ["new", 100, 1, 4000, 6, 0],
            ["offload", 110, 9, 1, 4000, 4000, 5, 6],
            ["free", 120, 1],
            ["new", 130, 2, 3000, 5, 0],
            ["fetch", 131, 9, 2],  # a smaller block: the rest stays offloaded
            ["free", 140, 2],
            ["new", 150, 3, 5000, 5, 0],
            ["fetch", 151, 9, 3],  # a larger one: nothing does
            ["new", 160, 4, 100, 5, 0],
            ["free", 170, 3],
            ["end", 180, 9],
        ],
    )
    assert [sample[:3] for sample in usage.samples] == [
        (100, 4000, 0),
        (120, 0, 4000),
        (131, 3000, 1000),
        (140, 0, 4000),
        (151, 5000, 0),
        (160, 5100, 0),
        (170, 100, 4000),
        (180, 100, 0),
    ]
    assert (usage.peak.device, usage.peak_without.without) == (5100, 5100)


def test_a_device_s_steps_are_the_run_s_from_its_first_use_on(tmp_path):
    steps = [
        ["new", 100, 1, 4000, 0, 0],
        ["step", 110, 1, synthetic.STATE],
        ["new", 120, 2, 500, 0, 1],
        ["step", 130, 2, synthetic.STATE],
    ]
    usage = usage_by_device(read_log(synthetic.write(tmp_path / "7-1.spillway", steps)))
    assert (usage[0].steps, usage[1].steps) == ([(4000, 4000)] * 2, [(0, 0), (500, 500)])


def state(peaks: dict[str, int]) -> dict:
    return {"devices": {index: synthetic.DEVICE | {"allocated_peak": peak} for index, peak in peaks.items()}}


def full_log(*later_peaks: dict[str, int], at_first: int = 4000) -> list:
    """Single events end in the second step; the statistics give these peaks for later ones."""
    steps = [["step", 300 + 10 * place, place + 2, state(peaks)] for place, peaks in enumerate(later_peaks)]
    return [*synthetic.LINES[:-1], ["step", 200, 1, state({"0": at_first})], ["full", 250], *steps]


def stated(tmp_path: Path, lines: list) -> list[str]:
    """The sentences about peaks, which page and terminal must both print."""
    each = digest(read_log(synthetic.write(tmp_path / "7-1.spillway", lines)))
    console = Console(width=1000, file=io.StringIO(), record=True)
    terminal.show([each], console)
    said, shown = console.export_text(), page([each])
    sentences = [fact for fact in words.facts(each) if fact.startswith("Peak of device memory")]
    assert all(sentence in said and sentence in shown for sentence in sentences)
    return sentences


def test_a_peak_after_the_detailed_steps_is_stated_with_its_source(tmp_path):
    sentences = stated(tmp_path, full_log({"0": 9000}, {"0": 9500}, {"0": 6000}))
    assert sentences == [
        "Peak of device memory: 9.3 KiB (9500 bytes), by the statistics of later steps; in the first 250 ns "
        "it was 3.9 KiB. Without offload it would have been at least 9.3 KiB (9500 bytes): offloaded bytes "
        "are known only in the first 250 ns."
    ]
    text = page([digest(read_log(tmp_path / "7-1.spillway"))])
    assert "<b>9.3 KiB</b><span>peak of device memory" in text
    assert "At the peak of the detailed steps, 3.9 KiB, the device held" in text


def test_a_peak_of_the_detailed_steps_is_stated_if_no_later_one_is_higher(tmp_path):
    sentences = stated(tmp_path, full_log({"0": 3500}))
    assert len(sentences) == 1
    assert re.match(r"Peak of device memory: 3\.9 KiB \(4000 bytes\), in the first 250 ns; ", sentences[0])
    assert "at least 6.8 KiB (7000 bytes)" in sentences[0]


def test_each_device_has_its_peak_after_the_single_events(tmp_path):
    sentences = stated(tmp_path, full_log({"0": 4000, "1": 8000, "2": 0}))
    starts = [sentence.split(",")[0] for sentence in sentences]
    assert starts == [
        "Peak of device memory of GPU 0: 3.9 KiB (4000 bytes)",
        "Peak of device memory of GPU 1: 7.8 KiB (8000 bytes)",
    ]


def test_a_peak_of_before_the_log_is_not_one_of_later_steps(tmp_path):
    assert "(4000 bytes)" in stated(tmp_path, full_log({"0": 20000}, at_first=20000))[0]


def test_steps_without_single_events_are_counted_and_not_drawn(tmp_path):
    each = digest(read_log(synthetic.write(tmp_path / "7-1.spillway", full_log({"0": 1}, {"0": 1}))))
    assert ([step.number for step in each.steps], each.later_steps) == ([0], 2)
    text = page([each])
    assert "3 steps</p>" in text and "and 2 later steps, of which only totals were written" in text
    assert "step 1" not in text
