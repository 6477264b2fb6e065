# SPDX-License-Identifier: Apache-2.0
"""A budget that one operator exceeds: the error names the operator, its tensors, and a budget that works."""

import json
import re
import subprocess
import sys
from functools import cache

import pytest
from conftest import PROGRAMS

WEIGHT = 4 * 4096**2
WORKSPACES = 64 << 20
PARAMETERS = [f"{layer}.{each}" for layer in range(3) for each in ("weight", "bias")]


@cache
def trained(budget, *arguments, options=()):
    command = [sys.executable, "-m", "spillway", "dry-run", "h200", f"--budget={budget}", *options, "--"]
    done = subprocess.run(
        [*command, sys.executable, str(PROGRAMS / "too_small.py"), *arguments],
        capture_output=True,
        text=True,
        timeout=600,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("found: ")]
    assert lines, done.stdout + done.stderr
    return json.loads(lines[0].removeprefix("found: "))


SMALL, LARGER = str(WORKSPACES + WEIGHT), str(WORKSPACES + 3 * WEIGHT)
JOBS = pytest.mark.parametrize(
    ("budget", "optimizer"),
    [(SMALL, ()), (LARGER, ()), (SMALL, ("for-loop",))],
    ids=["small-foreach", "larger-foreach", "small-for-loop"],
)


@JOBS
def test_the_error_names_the_operator_and_its_tensors(budget, optimizer):
    error = trained(budget, *optimizer)["error"]
    assert error["operator"].startswith("aten::")
    assert error["operator"] in error["text"]
    if optimizer:  # temporaries of a for-loop: the operator uses no model state
        return
    largest = error["tensors"][0]
    assert largest["bytes"] == WEIGHT
    assert (largest["shape"], largest["dtype"]) == ([4096, 4096], "float32")
    managed = [each for each in error["tensors"] if each["kind"]]
    assert managed
    for each in managed:
        of = each["name"].removeprefix("gradient of ").removeprefix("state of ")
        assert of in PARAMETERS
        assert each["name"] in error["text"]


@JOBS
def test_a_job_runs_with_the_smallest_budget_that_the_error_names(budget, optimizer):
    found = trained(budget, *optimizer)
    error = found["error"]
    assert found["over_budget"] > 0
    assert error["smallest"] >= error["needed"] > int(budget)

    again = trained(str(error["smallest"]), *optimizer)
    assert again["error"] is None
    assert again["steps"] == 4
    assert again["over_budget"] == 0
    assert again["reserved"] <= error["smallest"]


def test_the_error_names_what_the_program_keeps_on_the_gpu():
    kept = trained(SMALL, "kept")["error"]
    assert kept["kept"] >= 3 * WEIGHT
    assert "keep_on_device" in kept["text"]
    assert "--keep-model-state" not in kept["text"]

    all_kept = trained(SMALL, options=("--keep-model-state",))["error"]
    assert all_kept["keeps_model_state"]
    assert "--keep-model-state" in all_kept["text"]
    assert "keep_on_device" not in all_kept["text"]


def test_the_page_of_a_dry_run_names_what_exceeded_the_budget_without_a_step():
    program = """
import torch
model = torch.nn.Linear(4096, 4096).to("cuda")
with torch.no_grad():
    model(torch.randn(8, 4096, device="cuda"))
"""
    command = [sys.executable, "-m", "spillway", "dry-run", "h200", "--budget=96MiB", "--", sys.executable]
    done = subprocess.run([*command, "-c", program], capture_output=True, text=True, timeout=600)
    (line,) = [each for each in done.stderr.splitlines() if each.startswith("  budget ")]
    assert "aten::addmm" in line


EVALUATION = """
import torch
model = torch.nn.Linear(1024, 1024).to("cuda")
with torch.no_grad():
    kept = [model(torch.randn(1024, 1024, device="cuda")) for _ in range(12)]
"""
# Its graphs save parameters only, which no plan of activations covers.
WITHOUT_ACTIVATIONS = """
import torch
points = [torch.nn.Parameter(torch.randn(1024, 1024).to("cuda")) for _ in range(2)]
optimizer = torch.optim.SGD(points)
for _ in range(2):
    kept = [each * 2 for each in points for _ in range(12)]
    sum((each * each).mean() for each in points).backward()
    optimizer.step()
    del kept
"""


@pytest.mark.parametrize("program", [EVALUATION, WITHOUT_ACTIVATIONS])
def test_an_excess_that_no_step_reports_is_a_warning(program):
    def warnings_with(budget):
        command = [sys.executable, "-m", "spillway", "emulate", f"--budget={budget}", "--", sys.executable]
        done = subprocess.run([*command, "-c", program], capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
        return re.findall(r"RuntimeWarning: budget .*", done.stderr)

    (text,) = warnings_with("72MiB")
    smallest = re.search(r"aten::\S+ needs the most: .* or --budget (\S+)\.$", text)
    assert smallest, text
    assert warnings_with(smallest[1]) == []


def test_the_need_counts_what_is_on_the_gpu():
    error = trained(SMALL)["error"]
    # All three weights have 192 MiB, and their states twice as much.
    assert error["parameters"] < 2.5 * WEIGHT
    assert error["states"] <= 2.5 * WEIGHT
    assert error["breakdown"] == error["smallest"]


def test_offloaded_model_state_does_not_count_as_on_the_gpu():
    program = """
import torch
from spillway._load import glue
from spillway.model_state import state_by_class
layer = torch.nn.Linear(64, 64, bias=False).to("cuda")
optimizer = torch.optim.SGD(layer.parameters())
print(state_by_class([optimizer])[0].parameters)
glue().offload_model_state()
print(state_by_class([optimizer]))
"""
    command = [sys.executable, "-m", "spillway", "emulate", "--budget=1GiB", "--", sys.executable]
    done = subprocess.run([*command, "-c", program], capture_output=True, text=True, timeout=600)
    assert done.stdout.split("\n") == [str(4 * 64 * 64), "{}", ""], done.stderr
