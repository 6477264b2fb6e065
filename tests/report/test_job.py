# SPDX-License-Identifier: Apache-2.0
"""A job that does not use Spillway, run with --report, and the contents of its page."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys

import pytest
from browser import drawn
from conftest import JOB, command, run_job
from launched import clean_environment, spillway
from spillway import launch
from spillway.report.log import read_log
from spillway.report.operators import by_name, by_tag
from spillway.report.output import read
from spillway.report.runs import read_folder
from test_page import parse
from test_trace_events import check_trace


@pytest.fixture(scope="session")
def report(job):
    result = spillway("report", job.folder)
    assert result.returncode == 0, result.stderr
    return result


@pytest.fixture(scope="session")
def words(job, report):
    """The page's words, as something reads them who has nothing else."""
    return " ".join(" ".join(parse(job.folder / "report.html").words).split())


def test_a_recorded_job_trains_as_without(job):
    assert job.truth["losses"] == job.plain["losses"]
    assert job.truth["stats"]["tags"]["job"]["last"]["offloaded_bytes"] > 0


def test_the_page_states_the_peak_with_and_without(job, words):
    found = re.search(
        r"Peak of device memory: .*? \((\d+) bytes\)\. Without offload it would have been .*? \((\d+) bytes",
        words,
    )
    assert found is not None
    assert int(found[1]) == job.truth["peak"]
    # Not an estimate: the same job without offload needs just that.
    assert int(found[2]) == job.plain["peak"]
    assert job.plain["peak"] > job.truth["peak"]


def test_the_page_states_the_largest_offloaded_storage_with_source_and_cost(job, words):
    found = re.search(
        r"The largest offloaded storage: .*? \((\d+) bytes\), tag (\S+), made by (\w+), saved at (\S+) "
        r"in (\w+)\. It was offloaded (\d+) times and cost (.*?) of copies out, (.*?) of copies in and "
        r"(.*?) of stalls\.",
        words,
    )
    assert found is not None
    # 1024 rows of 2048 floats: what the wide layer's matrix product gives, or its activation function.
    assert int(found[1]) == 1024 * 2048 * 4
    assert (found[2], found[3]) in (("activation/large.up", "Addmm"), ("activation/large", "Gelu"))
    path, line = found[4].split(":")
    assert path == "report/job.py" and found[5] == "forward"
    assert "gelu(self.up(x))" in JOB.read_text().splitlines()[int(line) - 1]
    costs = [float(re.fullmatch(r"([\d.]+) ms", cost)[1]) for cost in found.group(7, 8)]
    # At 1 GiB/s, 8 MiB take 7.8 ms; a copy also has its latency.
    expected = int(found[6]) * 8 / 1024 * 1e3
    assert all(expected <= cost <= 1.05 * expected for cost in costs)


def test_the_page_counts_offloaded_and_resident_storages(job, words):
    residency = job.truth["stats"]["devices"]["0"]["residency"]
    digest = read(job.folder)[0]
    assert digest.copies.all.out_bytes == residency["stashed_bytes"]
    assert digest.copies.all.in_bytes == residency["fetched_bytes"]
    last = job.truth["stats"]["tags"]["job"]["last"]
    assert digest.log.tag_steps[-1].offloaded == last["offloaded_bytes"]
    assert digest.log.tag_steps[-1].skipped == last["skipped"]
    assert f"({job.truth['stats']['devices']['0']['host']['pinned_peak_bytes']} bytes)" in words
    for reason in last["skipped"]:
        assert reason in words


def test_the_page_states_that_it_is_the_emulated_gpu(words):
    assert "This run used the emulated GPU" in words
    assert "This run is unfinished" not in words


def test_each_step_is_there(job):
    digest = read(job.folder)[0]
    assert [step.number for step in digest.steps] == list(range(6))
    assert all(step.end > step.begin for step in digest.steps)
    assert all(
        before.end == after.begin for before, after in zip(digest.steps[:-1], digest.steps[1:], strict=True)
    )
    assert sum(step.stalled for step in digest.steps) == digest.copies.all.stalled


def test_the_trace_follows_the_format_s_rules(job, report):
    check_trace(json.loads((job.folder / "trace.json").read_text()))


def test_the_terminal_states_the_same(job, report):
    said = " ".join(report.stdout.split())
    assert f"({job.plain['peak']} bytes)" in said
    assert "used the emulated GPU" in said


def test_a_browser_draws_the_page_of_a_job_too(job, report, tmp_path):
    said = drawn(job.folder / "report.html", tmp_path)
    assert said == {"problems": [], "charts": 2, "inside": True, "first": "5", "then": "0", "fits": True}


def test_only_the_user_can_read_what_was_recorded(job):
    assert job.folder.stat().st_mode & 0o777 == 0o700
    assert [log.stat().st_mode & 0o777 for log in job.logs] == [0o600]


def test_a_job_that_dies_leaves_what_it_had_written(tmp_path):
    result = run_job(tmp_path / "out", "--ratio", "0.9", JOB_DIES_AT="2")
    assert result.returncode != 0
    log = read_folder(tmp_path / "out")[0]
    assert not log.complete and len(log.steps) == 3
    shown = spillway("report", tmp_path / "out")
    assert shown.returncode == 0, shown.stderr
    assert "This run is unfinished" in " ".join(shown.stdout.split())


def test_a_job_that_never_uses_cuda_writes_nothing(tmp_path):
    job = [
        *command(tmp_path / "out", "--ratio", "0.5")[:-1],
        "-c",
        "import torch; print(torch.ones(2).sum())",
    ]
    result = subprocess.run(
        job, env=clean_environment(), capture_output=True, text=True, check=False, timeout=300
    )
    assert result.returncode == 0, result.stderr
    assert not (tmp_path / "out").exists()


WORKERS = """
import torch
from torch.utils.data import DataLoader, TensorDataset
model = torch.nn.Linear(64, 64).to("cuda")
for (x,) in DataLoader(TensorDataset(torch.ones(8, 64)), batch_size=4, num_workers=2):
    model(x.to("cuda")).sum().backward()
"""


def test_workers_write_nothing(tmp_path):
    job = [*command(tmp_path / "out", "--ratio", "0.5")[:-1], "-c", WORKERS]
    result = subprocess.run(
        job, env=clean_environment(), capture_output=True, text=True, check=False, timeout=300
    )
    assert result.returncode == 0, result.stderr
    logs = read_folder(tmp_path / "out")
    assert len(logs) == 1 and logs[0].complete


def test_over_pytorch_s_own_allocator_the_peak_is_known_without_tags(tmp_path):
    result = run_job(tmp_path / "out", "--ratio", "0.9", "--allocator", "torch")
    assert result.returncode == 0, result.stderr
    digest = read(tmp_path / "out")[0]
    assert digest.log.about["allocator"] == "native"
    assert digest.first.peak.device == json.loads(result.stdout)["peak"]
    assert digest.copies.all.out_bytes > 0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda folder: None, "no such file or directory"),
        (lambda folder: folder.mkdir(), "contains no run log"),
        (lambda folder: folder.write_text("x"), "not a directory"),
    ],
)
def test_a_folder_that_shows_nothing_is_one_line_and_status_2(tmp_path, make, message):
    folder = tmp_path / "out"
    make(folder)
    for name in ("report", "top"):
        result = spillway(name, folder)
        assert result.returncode == 2
        assert result.stderr.count("\n") == 1
    assert message in spillway("report", folder).stderr
    assert not list(tmp_path.rglob("report.html"))


def test_a_page_that_cannot_be_written_is_one_line_and_leaves_nothing(job, tmp_path):
    result = spillway("report", job.folder, "--output", tmp_path / "nowhere" / "run.html")
    assert result.returncode == 2 and result.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_what_is_being_done_is_reported_to_a_terminal_alone(job, report, tmp_path):
    assert report.stderr == ""
    terminal_end, screen = pty.openpty()
    command = [sys.executable, "-m", "spillway", "report", job.folder, "--output", tmp_path / "run.html"]
    env = clean_environment() | {"TERM": "xterm"}
    with subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=screen) as process:
        os.close(screen)
        seen = b""
        with (
            open(terminal_end, "rb", buffering=0) as terminal,
            contextlib.suppress(OSError),
        ):  # as a closed one ends
            while True:
                seen += terminal.read(4096)
    assert process.returncode == 0
    assert b"writing the page and the trace" in seen


def test_operators_are_timed_where_they_are_asked_for(job, tmp_path):
    timed = run_job(tmp_path / "out", "--ratio", "0.9", "--operators")
    assert timed.returncode == 0, timed.stderr
    assert json.loads(timed.stdout)["losses"] == job.truth["losses"]
    steps, linears = len(job.truth["losses"]), 2 * 6 + 1  # two in each block, and the head
    calls = {time.what: time.calls for time in by_name(read(tmp_path / "out")[0].log.operators)}
    # What they call inside, such as addmm, is a part of them.
    assert calls["aten::linear"] == calls["AddmmBackward0"] == steps * linears and "aten::addmm" not in calls
    tags = {time.what for time in by_tag(read(tmp_path / "out")[0].log.operators)}
    assert {"activation/large.up", "workspace/large.up"} <= tags
    assert not read(job.folder)[0].log.operators


def test_where_a_profiler_has_cupti_one_line_states_that_there_are_no_kernels(job, tmp_path):
    # The launcher refuses it for the emulated GPU, where no kernel could be named either.
    env = launch.environment(True, base=clean_environment(), ratio="0.9", report=str(tmp_path / "out"))
    env |= {"SPILLWAY_REPORT_KERNELS": "2", "CUDA_INJECTION64_PATH": "/profiler.so"}
    watched = subprocess.run([sys.executable, JOB], env=env, capture_output=True, text=True, check=False)
    assert watched.returncode == 0
    assert json.loads(watched.stdout)["losses"] == job.truth["losses"]
    assert re.fullmatch(
        r"kernels cannot be recorded: CUDA_INJECTION64_PATH=/profiler\.so: .*\n", watched.stderr
    )
    assert not read(tmp_path / "out")[0].log.kernels


@pytest.mark.parametrize("options", [("--ratio", "0.9"), ("--budget", "50%"), ("--recompute", "--operators")])
def test_an_interrupted_job_dies_by_the_signal_and_its_log_has_an_end(tmp_path, options):
    with subprocess.Popen(
        command(tmp_path, *options),
        env=clean_environment() | {"JOB_WAITS_AT": "3"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "waiting\n"
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=120)
    assert process.returncode == -signal.SIGINT
    assert said.rstrip().endswith("KeyboardInterrupt")
    (log,) = tmp_path.glob("*.spillway")
    assert read_log(log).complete
