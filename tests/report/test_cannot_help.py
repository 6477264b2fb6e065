# SPDX-License-Identifier: Apache-2.0
"""Jobs whose peak offloading does not lower, and where Spillway reports that."""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from launched import spillway
from spillway.cannot_help import REASONS, text
from spillway.report.runs import read_folder
from test_top import reading_at, shown

JOB = Path(__file__).with_name("cannot_help_job.py")
PEAKS = ("optimizer", "evaluation", "operator", "compiled_graph", "other_offloader")


@cache
def run(
    where: str, *options: str, steps: int = 5, grows: int = 1000, limit: int | None = None
) -> tuple[dict[str, Any], str]:
    """What the job printed, and its stderr, of a run without arithmetic; once for the same arguments."""
    limited = {} if limit is None else {"SPILLWAY_MEMORY_LIMIT": str(limit)}
    program = (sys.executable, JOB, where, str(steps), str(grows))
    result = spillway("dry-run", *options, "--", *program, **limited)
    assert result.returncode == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found, result.stderr


def words(shown: str) -> str:
    return " ".join(shown.split())


@pytest.mark.parametrize("where", PEAKS)
def test_a_peak_that_offloading_does_not_lower_is_reported_after_three_steps(where):
    found = run(where, "--ratio", "1")[0]["found"]
    # What is allocated before the first saved tensor of a step is known with the end of the next one.
    first = 3 if where in ("evaluation", "compiled_graph") else 2
    assert found[:first] == [None] * first
    for why in found[first:]:
        assert why["reason"] == where
        assert why["text"] == text(where, why["bytes"])


@pytest.mark.parametrize("where", ["optimizer", "evaluation", "operator", "compiled_graph"])
def test_such_a_peak_is_the_same_without_offloading(where):
    offloaded = run(where, "--ratio", "1")[0]
    plain = run(where, "--ratio", "0")[0]
    assert 0.96 * plain["peak"] <= offloaded["peak"] <= plain["peak"]
    assert plain["found"] == [None] * 5  # nothing is offloaded


@pytest.mark.parametrize("where", ["optimizer", "evaluation", "operator", "compiled_graph"])
def test_a_job_moves_nothing_once_that_is_known(where):
    job = run(where, "--ratio", "1", steps=8)[0]
    known = [why is not None for why in job["found"]]
    # The answer of one step is for the next one.
    helps = [True, *(not each for each in known[:-1])]
    assert [moved > 0 for moved in job["offloaded"]] == helps
    assert [kept == 0 for kept in job["kept"]] == helps
    assert known[-3:] == [True] * 3  # and it stays so


def test_a_region_of_the_program_still_moves_its_ratio(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "import spillway, runpy\n"
        "spillway.use_allocator()\n"
        "with spillway.CPUOffload(offload_ratio=1.0, tag='job'):\n"
        f"    runpy.run_path({str(JOB)!r}, run_name='__main__')\n"
    )
    result = spillway("dry-run", "--", sys.executable, script, "optimizer", "6")
    assert result.returncode == 0, result.stderr
    job = json.loads(result.stdout)
    assert job["found"][-1]["reason"] == "optimizer"
    assert len(set(job["offloaded"])) == 1
    assert job["offloaded"][0] > 0


@pytest.mark.parametrize("grows", [5, 11])  # in one of the first steps, and later
def test_a_job_offloads_again_when_larger_batches_need_it(grows):
    grown = run("optimizer", "--ratio", "1", steps=grows + 4, grows=grows)[0]
    assert grown["found"][grows - 1]["reason"] == "optimizer"
    assert grown["offloaded"][grows - 1] == 0
    assert grown["offloaded"][grows + 1] > 0  # the step after the first large one
    assert grown["found"][grows + 1] is None
    assert grown["peaks"][grows + 2] < grown["peaks"][grows]


def test_a_single_evaluation_keeps_nothing_on_the_gpu_indefinitely():
    job = run("one_evaluation", "--ratio", "1", steps=40)[0]
    assert job["offloaded"][-1] > 0
    assert job["peaks"][-1] < max(job["peaks"][:4])


def test_a_larger_batch_that_only_offloading_makes_fit_is_served():
    offloaded = run("optimizer", "--ratio", "1", steps=2, grows=0)[0]["peak"]
    plain = run("optimizer", "--ratio", "0", steps=2, grows=0)[0]["peak"]
    assert offloaded < plain
    limit = (offloaded + plain) // 2
    served = run("optimizer", "--ratio", "1", steps=7, grows=5, limit=limit)[0]
    assert served["offloaded"][4] == 0
    assert served["offloaded"][5] > 0
    assert served["peak"] <= limit


@pytest.mark.parametrize("where", ["optimizer", "evaluation"])
def test_the_reported_bytes_are_the_peak(where):
    found = run(where, "--ratio", "1")[0]
    assert found["found"][-1]["bytes"] == found["peak"]


def test_an_operator_is_reported_with_the_size_of_its_allocation():
    assert run("operator", "--ratio", "1")[0]["found"][-1]["bytes"] == 512 << 20


@pytest.mark.parametrize(
    "options",
    [
        ("--ratio", "1"),
        ("--ratio", "0.1"),
        ("--ratio", "0"),
        ("--recompute",),
        ("--ratio", "1", "--allocator", "torch"),
    ],
)
def test_nothing_is_reported_where_offloading_lowers_the_peak_or_does_nothing(options):
    assert run("forward", *options)[0]["found"] == [None] * 5


def test_a_budget_below_parameters_gradients_and_states_is_reported_with_what_is_missing():
    found = run("model_state", "--budget", "20MiB", "--over-budget", "warn")[0]["found"]
    why = found[-1]
    assert why["reason"] == "model_state"
    parameters = 6 * (1024 * 1024 + 1024) * 4
    steps = 2 * 12 * 4  # the optimizer's counters, which AdamW keeps on the CPU
    assert abs(why["bytes"] - (4 * parameters - (20 << 20))) <= steps + 12 * 512
    assert found[0] is not None  # in the first step


def test_a_budget_that_holds_them_is_not_reported():
    assert run("model_state", "--budget", "400MiB")[0]["found"] == [None] * 5


def test_the_report_top_s_page_and_a_dry_run_s_page_say_it_once(tmp_path):
    found, stderr = run("optimizer", "--ratio", "1", "--report", str(tmp_path))
    said = found["found"][-1]["text"]
    # The dry run's page, and one line of the logger at exit.
    assert words(stderr).count(said) == 2
    assert words(stderr).count(f"INFO:spillway:{said}") == 1
    summary = spillway("report", tmp_path)
    assert words(summary.stdout).count(said) == 1
    assert (tmp_path / "report.html").read_text().count(f"{said.split(':')[0]}:") == 2  # with the dry run's
    (log,) = read_folder(tmp_path)
    assert list(log.last["cannot_help"]) == ["optimizer"]


def test_a_page_of_top_names_every_reason():
    for reason in REASONS[1:]:
        now = reading_at(1, 0, 0, 0, cannot_help=reason, cannot_help_bytes=3 << 20)
        (head, _, cause) = text(reason, 3 << 20).partition(":")
        assert any(line.startswith(head) for line in shown(now, None)), cause
    assert not any(line.startswith("Offloading") for line in shown(reading_at(1, 0, 0, 0), None))
