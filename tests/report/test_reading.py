# SPDX-License-Identifier: Apache-2.0
"""What is read out of a log of which everything is known."""

from __future__ import annotations

from pathlib import Path

import pytest
import synthetic
from spillway.report.copies import BACK, OTHER, REUSE, Site, copies_of
from spillway.report.digests import digest
from spillway.report.html_page import page
from spillway.report.log import ReportError, read_log
from spillway.report.operators import by_name, by_tag
from spillway.report.words import facts, makers


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return synthetic.write(tmp_path / "out" / "7-1.spillway")


def test_what_a_stall_covers_is_not_hidden(path):
    copies = copies_of(read_log(path))
    assert copies.copy_time == 4000
    assert copies.hidden_share == 0.75  # of 4000 ns, all but the 1000 of the stall
    assert copies.stalled_for == {BACK: 1000}
    assert copies.tags["job"].stalls == 1


def test_a_copy_stream_that_waits_is_no_stall(tmp_path):
    lines = [*synthetic.LINES, ["wait", 170, 3000, 8000, 0, synthetic.IN, synthetic.OUT, 5, 9]]
    copies = copies_of(read_log(synthetic.write(tmp_path / "7-1.spillway", lines)))
    assert copies.all.stalled == 1000


def test_a_copy_is_hidden_where_only_another_device_waited(tmp_path):
    of_gpu_1 = [
        ["in", 152, 1000, 3000, 1, synthetic.IN, 4000, 5, 10],
        ["wait", 153, 1000, 3000, 1, synthetic.COMPUTE, synthetic.IN, 5, 10],  # beside GPU 0's copy out
        ["in", 154, 7000, 9000, 1, synthetic.IN, 4000, 5, 11],
        ["wait", 155, 8500, 9000, 1, synthetic.COMPUTE, synthetic.IN, 5, 11],
    ]
    copies = copies_of(read_log(synthetic.write(tmp_path / "7-1.spillway", [*synthetic.LINES, *of_gpu_1])))
    # GPU 0's 4000 ns but for its own stall of 1000, and GPU 1's 4000 ns but for its own of 2500.
    assert (copies.copy_time, copies.hidden_time) == (8000, 4500)


def test_a_copy_is_hidden_where_a_stream_waited_for_computation(tmp_path):
    # Two computing streams: one waits for the other during the whole of the copy out.
    other = ["wait", 153, 1000, 3000, 0, 4, synthetic.COMPUTE, 5, 0]
    copies = copies_of(read_log(synthetic.write(tmp_path / "7-1.spillway", [*synthetic.LINES, other])))
    assert copies.stalled_for == {BACK: 1000, OTHER: 2000}
    assert (copies.copy_time, copies.hidden_time) == (4000, 3000)


def test_memory_that_a_copy_still_reads_is_no_hiding_place(tmp_path):
    reuse = ["wait", 112, 2500, 3000, 0, synthetic.COMPUTE, synthetic.OUT, 5, 0]
    copies = copies_of(read_log(synthetic.write(tmp_path / "7-1.spillway", [*synthetic.LINES, reuse])))
    assert copies.stalled_for == {BACK: 1000, REUSE: 500}
    assert (copies.copy_time, copies.hidden_time) == (4000, 2500)


NEXT_COPY = ["in", 160, 6000, 7000, 0, synthetic.IN, 4000, 5, 10]


@pytest.mark.parametrize(
    ("stream", "submitted", "begin", "end", "storage", "stalled"),
    [
        (synthetic.IN, 153, 6003, 6006, 9, None),  # its copy had ended
        (synthetic.IN, 153, 6000, 6003, 9, None),
        (synthetic.IN, 153, 5900, 6003, 9, (5900, 6000)),  # its copy ended before the next event came
        (synthetic.IN, 161, 5900, 6003, 9, (5900, 6000)),  # the next one runs by then
        (synthetic.IN, 153, 3500, 3600, 9, None),  # its copy had not even begun
        (synthetic.IN, 161, 6500, 7003, 0, (6500, 7000)),  # of no storage: the stream's copies
        (synthetic.IN, 161, 5900, 6003, 0, (5900, 6003)),
        (synthetic.IN, 159, 5900, 6003, 0, (5900, 6000)),  # the next one was not submitted yet
        (synthetic.IN, 170, 7010, 7013, 0, None),
        (synthetic.OUT, 112, 2990, 3003, 0, (2990, 3000)),
        (synthetic.OUT, 154, 3500, 3503, 9, None),
        (synthetic.OUT, 112, 2990, 3003, 10, (2990, 3000)),  # on behalf of another storage
        (4, 153, 8000, 8003, 9, (8000, 8003)),  # no copies are known there
    ],
)
def test_a_wait_is_a_stall_only_while_its_copy_still_runs(
    tmp_path, stream, submitted, begin, end, storage, stalled
):
    wait = ["wait", submitted, begin, end, 0, synthetic.COMPUTE, stream, 5, storage]
    lines = [line for line in synthetic.LINES if line[0] != "wait"]
    path = synthetic.write(tmp_path / "7-1.spillway", [*lines, NEXT_COPY, wait])
    each = digest(read_log(path))
    assert [(span.begin, span.end) for span, _ in each.copies.stalls] == ([stalled] if stalled else [])
    length = stalled[1] - stalled[0] if stalled else 0
    assert each.copies.tags["job"].stalled == each.copies.all.stalled == each.steps[0].stalled == length
    assert each.sites[0].costs.stalled == (length if storage == 9 else 0)


def test_a_copy_out_that_was_for_the_same_storage_is_not_what_is_waited_for(tmp_path):
    # Memory for the fetch of storage 9 is taken from one that a copy out of storage 10 still reads.
    lines = [
        ["out", 113, 3000, 8000, 0, synthetic.OUT, 4000, 5, 10],
        ["wait", 150, 7000, 8003, 0, synthetic.COMPUTE, synthetic.OUT, 5, 9],
    ]
    path = synthetic.write(tmp_path / "7-1.spillway", [*synthetic.LINES, *lines])
    assert copies_of(read_log(path)).stalled_for == {BACK: 1000, REUSE: 1000}


def test_the_largest_storage_has_its_source_and_costs(path):
    site = digest(read_log(path)).sites[0]
    assert (site.bytes, site.memory, site.region) == (4000, "activation/layers.0", "job")
    assert (site.made_by, site.lines) == (["relu"], ["/jobs/train.py:12 forward"])
    assert (site.costs.out_time, site.costs.in_time, site.costs.stalled) == (2000, 2000, 1000)


def site_of(tmp_path: Path, *made_by: str) -> Site:
    """Of the storage that moves, where it was saved once by each."""
    sources = [["from", 9, each, "/jobs/train.py:12 forward"] for each in made_by]
    lines = [line for line in synthetic.LINES if line[0] != "from"]
    return digest(read_log(synthetic.write(tmp_path / "7-1.spillway", [*lines, *sources]))).sites[0]


def test_all_that_are_known_to_have_made_it_are_named(tmp_path):
    assert site_of(tmp_path, "", "Gelu", "Addmm", "Gelu").made_by == ["Addmm", "Gelu"]
    assert makers(site_of(tmp_path, "", "Addmm")) == "Addmm"


@pytest.mark.parametrize("made_by", [("",), ()])
def test_an_unknown_maker_is_reported_as_unknown(tmp_path, made_by):
    site = site_of(tmp_path, *made_by)
    assert (site.made_by, makers(site)) == ([], "unknown")
    each = digest(read_log(tmp_path / "7-1.spillway"))
    assert "tag activation/layers.0, operator unknown" in facts(each)[1]
    assert "<td >unknown</td>" in page([each]) or '<td class="left">unknown</td>' in page([each])


def test_the_host_s_moments_are_put_on_the_device_s_time(path):
    clock = digest(read_log(path)).clock
    assert clock.at(100) == 1000
    assert clock.at(200) == 9000
    assert clock.at(150) < clock.at(160) <= 6000


def test_refusals_and_what_stayed_are_by_reason(path):
    found = digest(read_log(path))
    assert found.refused == {"limit": 2}
    assert found.skipped == {"tiny": {"storages": 2, "bytes": 20}}
    assert found.pinned_peak == 4096


def test_a_run_without_an_end_is_unfinished(tmp_path):
    assert not read_log(synthetic.write(tmp_path / "7-1.spillway", done=False)).complete


@pytest.mark.parametrize(
    "tail",
    ['["new",400,8,99', '["new",400,8,99\n', "\0" * 40, "\0" * 40 + "\n", '["new",400\0\0\0\n\0\0', "\n"],
)
def test_a_tail_that_a_killed_process_left_is_left_out(tmp_path, tail):
    path = synthetic.write(tmp_path / "7-1.spillway", done=False)
    whole = read_log(path)
    path.write_text(path.read_text() + tail)
    log = read_log(path)
    assert log.events == whole.events and log.spans == whole.spans and len(log.steps) == 1
    assert not log.complete


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text.replace('["free", 140, 2]', '["free", 140'), "line 10"),
        (lambda text: text.replace('["free", 140, 2]', '["fly", 140, 2]'), "line 10"),
        (lambda text: text.replace('["free", 140, 2]', "17"), "line 10"),
        (lambda text: text.replace('["free", 140, 2]', "\0" * 16), "line 10"),
        (lambda text: text + '["fly", 140, 2]\n', "line 22"),
        (lambda text: "\0" * 40, "is not a run log"),
        (lambda text: "hello\n", "is not a run log"),
        (lambda text: "", "is not a run log"),
        (lambda text: text.replace('"spillway_run_log": 2', '"spillway_run_log": 3'), "format 3"),
    ],
)
def test_what_is_no_log_is_refused_in_one_line(path, change, message):
    path.write_text(change(path.read_text()))
    with pytest.raises(ReportError, match=message) as caught:
        read_log(path)
    assert "\n" not in str(caught.value)


def test_operators_are_summed_by_name_and_by_tag(tmp_path):
    log = read_log(synthetic.write(tmp_path / "7-1.spillway", synthetic.OPERATORS_OF_A_RUN))
    calls = log.operators
    times = [(time.what, time.calls, time.total, time.longest) for time in by_name(calls)]
    assert times == [("MulBackward0", 1, 3000, 3000), ("aten::mul", 2, 2000, 1500)]
    assert [(time.what, time.total) for time in by_tag(calls)] == [
        ("job", 3500),
        ("activation/layers.0", 1500),
    ]
    assert [(time.what, time.total) for time in by_name(log.kernels)] == [("elementwise_kernel", 2000)]


def test_without_operators_the_page_has_no_table_of_them(tmp_path):
    for name, lines in (("plain", synthetic.LINES), ("timed", synthetic.OPERATORS_OF_A_RUN)):
        synthetic.write(tmp_path / name / "7-1.spillway", lines)
        text = page([digest(read_log(tmp_path / name / "7-1.spillway"))])
        assert ("What the computation did" in text) == (name == "timed")
        assert ("aten::mul: 1.5 µs" in text) == (name == "timed")
        assert ("elementwise_kernel" in text) == (name == "timed")
