# SPDX-License-Identifier: Apache-2.0
"""Model state by class, on the GPU and on the host, is shown by reports, explain, top and dry runs."""

import json
import re
import subprocess
import sys

import pytest
from conftest import PROGRAMS
from spillway.report.sizes import size


def spillway(*arguments):
    done = subprocess.run(
        [sys.executable, "-m", "spillway", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, done.stderr


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """The folder of a job's report, its model state by stats() and by top, and the page of the dry run."""
    folder = tmp_path_factory.mktemp("report")
    command = ("dry-run", "h200", "--budget=112MiB", "--report", folder, "--", sys.executable)
    printed, page = spillway(*command, PROGRAMS / "shown.py")
    lines = dict(line.split(": ", 1) for line in printed.splitlines()[:2])
    return folder, json.loads(lines["stats"]), json.loads(lines["page"]), page


def test_most_model_state_is_on_the_host(job):
    _, stats, _, _ = job
    resident, offloaded = (sum(each) for each in zip(*stats.values(), strict=True))
    assert offloaded > resident > 0


def test_top_shows_it_by_class(job):
    _, stats, page, _ = job
    assert page == stats


@pytest.mark.parametrize("command", ["explain", "report"])
def test_a_report_shows_it_by_class(job, command):
    folder, stats, _, _ = job
    text = " ".join(spillway(command, folder)[0].split())
    for name, (resident, offloaded) in stats.items():
        if resident or offloaded:
            where = f"{size(resident)} on the GPU, {size(offloaded)} on the host"
            assert f"{name.replace('_', ' ')} {where}" in text


def test_explain_as_json_has_it_too(job):
    folder, stats, _, _ = job
    documents = json.loads(spillway("explain", folder, "--json")[0])
    (state,) = [each["model_state"] for each in documents if "model_state" in each]
    assert {
        name: [of["resident_bytes"], of["offloaded_bytes"]] for name, of in state["classes"].items()
    } == stats


def test_a_dry_run_names_the_class_of_what_was_fetched(job):
    *_, page = job
    assert re.findall(r" parameters +fetch", page)
    # No activation is as large as a weight.
    assert not re.search(r"MiB .*activations", page)


def test_a_comparison_shows_it():
    command = ("dry-run", "h200", "--compare", "plain,budget=112MiB", "--", sys.executable)
    printed = spillway(*command, PROGRAMS / "shown.py")
    (line,) = [each for each in "".join(printed).splitlines() if "model state at the end" in each]
    assert line.startswith("budget=112MiB: ")
