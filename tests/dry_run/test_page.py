# SPDX-License-Identifier: Apache-2.0
"""What a dry run prints at its end, against what its program counted itself, and closed forms."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import job
import pytest
from conftest import DRY, JOB, asked, device_of, run_dry, spillway

PARAMETERS = job.LAYERS * job.WIDTH**2 * 2  # bytes
ACTIVATION = job.ROWS * job.WIDTH * 2
KERNEL = 2e-3  # ms that each takes besides


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str, str]:
    return asked(tmp_path_factory.mktemp("answered"), "--samples-per-step", "8")


def test_the_peak_is_the_program_s_own_whatever_it_resets(answered: tuple[dict[str, Any], str, str]) -> None:
    document, printed, _ = answered
    device = device_of(document)
    assert device["peak_allocated_bytes"] == int(printed)
    assert device["peak_reserved_bytes"] >= device["peak_allocated_bytes"]
    assert device["capacity_bytes"] == 64 << 30
    assert document["runs"][0]["fits"] is True
    assert device["out_of_memory"] is None


def test_memory_at_the_peak_is_reported_by_what_it_is_for(answered: tuple[dict[str, Any], str, str]) -> None:
    device = device_of(answered[0])
    held = device["allocated_at_peak_bytes"]
    assert held["parameters"] == PARAMETERS
    assert held["optimizer_states"] == 2 * PARAMETERS + 4 * job.LAYERS  # and a count of steps each
    assert held["inputs"] == ACTIVATION
    # Of each layer what its sine and the next one's product keep; the last one's result is gone by then.
    assert held["activations"] >= (2 * job.LAYERS - 1) * ACTIVATION
    assert 0 <= device["peak_allocated_bytes"] - sum(held.values()) < 1 << 20


def test_memory_of_a_compiled_model_is_for_the_same(tmp_path: Path) -> None:
    held = device_of(asked(tmp_path, JOB_COMPILED="1")[0])["allocated_at_peak_bytes"]
    assert held["parameters"] == PARAMETERS
    assert held["inputs"] == ACTIVATION
    # The input of each sine; what a product is given is recomputed from it.
    assert job.LAYERS * ACTIVATION <= held["activations"] <= 2 * job.LAYERS * ACTIVATION
    assert "other" not in held


def test_the_page_notes_that_compiled_code_s_time_is_no_prediction(
    tmp_path: Path, answered: tuple[dict[str, Any], str, str]
) -> None:
    document, _, page = asked(tmp_path, JOB_COMPILED="1", JOB_STEPS="2")
    said = "the step time does not predict torch.compile's speed"
    assert document["runs"][0]["processes"][0]["compiled"] is True
    assert said in " ".join(page.split())
    document, _, page = answered
    assert document["runs"][0]["processes"][0]["compiled"] is False
    assert said not in " ".join(page.split())


def test_without_an_optimizer_a_model_s_parameters_are_known(tmp_path: Path) -> None:
    document, _, page = asked(tmp_path, JOB_STEPS="0", JOB_ENDS="no step")
    assert device_of(document)["allocated_at_peak_bytes"]["parameters"] == PARAMETERS
    assert "step    unknown: no optimizer completed a step\n" in page


def test_the_largest_storages_have_the_lines_that_made_them(
    answered: tuple[dict[str, Any], str, str],
) -> None:
    lines = JOB.read_text().splitlines()
    at = next(number for number, line in enumerate(lines, 1) if ".sin()" in line)
    largest = device_of(answered[0])["largest_at_peak"]
    by_layers = [each for each in largest if each["lines"].startswith(f"job.py:{at} in forward")]
    # The last layer's sine is summed up and gone; the other one's operand is kept.
    assert {(each["operator"], each["role"], each["blocks"]) for each in by_layers} == {
        ("aten::linear", "activations", job.LAYERS),
        ("aten::sin", "activations", job.LAYERS - 1),
        ("aten::linear", "workspaces", 1),
    }
    assert largest == sorted(largest, key=lambda each: -each["bytes"])


def test_a_step_s_time_is_that_of_its_operators(answered: tuple[dict[str, Any], str, str]) -> None:
    document, _, _ = answered
    (process,) = document["runs"][0]["processes"]
    steps, shares = process["steps"], device_of(document)["shares"]
    assert steps["count"] == job.STEPS
    # Forward, and to the weight; to the input of all but the first layer.
    products = 3 * job.LAYERS - 1
    once = 2 * job.ROWS * job.WIDTH**2 / 1e15 * 1e3
    assert shares["products"] * steps["median_ms"] == pytest.approx(products * (once + KERNEL), rel=1e-9)
    assert shares["products"] + shares["memory_bound"] + shares["idle"] == pytest.approx(1)
    assert shares["attention"] == shares["copies_to_host"] == shares["copies_to_device"] == 0
    assert steps["samples_per_second"] == pytest.approx(8e3 / steps["median_ms"])


def test_the_page_is_on_stderr_and_the_program_s_output_is_its_own(
    answered: tuple[dict[str, Any], str, str],
) -> None:
    document, printed, page = answered
    assert printed.count("\n") == 1
    assert page.startswith("Dry run on Emulated GPU (Spillway) (64.0 GiB)\n")
    step = document["runs"][0]["processes"][0]["steps"]["median_ms"]
    for said in (
        "allocated at the peak",
        "fits    yes",
        f"step    {step:.1f} ms modeled (median of 3 after the first); {8e3 / step:.4g} samples per second",
        "optimizer states",
        "linear at job.py:",
        "Times are modeled, and not compared with hardware.",
    ):
        assert said in page


def test_a_profile_is_named() -> None:
    page = spillway("dry-run", "h200", "--", sys.executable, JOB, JOB_STEPS="1", JOB_LAYERS="1").stderr
    assert page.startswith("Dry run on NVIDIA H200 (139.8 GiB)\n")
    assert "(the first and only one)" in page


def test_the_json_can_go_to_stdout_behind_the_program_s_own() -> None:
    result = run_dry("--json", "-", JOB_STEPS="1")
    own, _, text = result.stdout.partition("\n")
    assert device_of(json.loads(text))["peak_allocated_bytes"] == int(own)


def test_what_does_not_fit_is_named_with_what_is_missing(tmp_path: Path) -> None:
    output = tmp_path / "answer.json"
    result = run_dry("--json", output, JOB_ENDS="out of memory")
    assert result.returncode == 1  # the program's own
    assert "torch.OutOfMemoryError" in result.stderr
    device = device_of(json.loads(output.read_text()))
    ended = device["out_of_memory"]
    assert (ended["times"], ended["requested_bytes"], ended["operator"]) == (1, 1 << 40, "aten::empty")
    assert ended["missing_bytes"] == ended["allocated_bytes"] + (1 << 40) - (64 << 30)
    assert "fits    no: with " in result.stderr
    assert "1.00 TiB were requested by empty at job.py:" in result.stderr


IN_PIECES = """
import torch

kept = []
for _ in range(3):
    large = torch.empty(20 << 30, dtype=torch.uint8, device="cuda")
    del large
    kept.append(torch.empty(21 << 29, dtype=torch.uint8, device="cuda"))
torch.empty(30 << 30, dtype=torch.uint8, device="cuda")
"""


def test_memory_in_pieces_hides_how_much_would_be_missing(tmp_path: Path) -> None:
    script, output = tmp_path / "pieces.py", tmp_path / "answer.json"
    script.write_text(IN_PIECES)
    result = spillway(*DRY, "--json", output, "--", sys.executable, script)
    device = device_of(json.loads(output.read_text()))
    assert device["out_of_memory"]["missing_bytes"] is None
    assert device["out_of_memory"]["allocated_bytes"] == 3 * (21 << 29)
    assert "not as one block (expandable_segments:True can help)" in " ".join(result.stderr.split())
    config = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    result = spillway(*DRY, "--json", output, "--", sys.executable, script, **config)
    assert (result.returncode, json.loads(output.read_text())["runs"][0]["fits"]) == (0, True)
    assert json.loads(output.read_text())["runs"][0]["processes"][0]["expandable_segments"] is True


TWICE = """
import torch

def allocated(size):
    return torch.empty(size, dtype=torch.uint8, device="cuda")

def first():
    allocated(1 << 30)

def second():
    allocated(1 << 30)

first()
second()
for size in (1 << 40, 1 << 41):
    try:
        allocated(size)
    except torch.OutOfMemoryError:
        pass
"""


def test_of_equal_peaks_and_ends_of_memory_the_first_is_reported(tmp_path: Path) -> None:
    script, output = tmp_path / "twice.py", tmp_path / "answer.json"
    script.write_text(TWICE)
    result = spillway(*DRY, "--json", output, "--", sys.executable, script)
    assert result.returncode == 0, result.stderr
    device = device_of(json.loads(output.read_text()))
    assert device["peak_allocated_bytes"] == 1 << 30
    (largest,) = device["largest_at_peak"]
    assert "in first" in largest["lines"]
    ended = device["out_of_memory"]
    assert (ended["times"], ended["requested_bytes"]) == (2, 1 << 40)
    assert ended["missing_bytes"] == (1 << 40) - device["available_bytes"]


@pytest.mark.parametrize(("ends", "status"), [("status", 7), ("killed", -15)])
def test_the_program_s_end_is_the_run_s(ends: str, status: int) -> None:
    result = run_dry(JOB_ENDS=ends, JOB_STEPS="1")
    assert result.returncode == status
    assert ("Dry run on" in result.stderr) == (ends == "status")
    assert ("this dry run has no figures" in result.stderr) == (ends == "killed")


def test_a_program_that_does_not_use_the_gpu_gets_one_line() -> None:
    result = spillway("dry-run", "--", "true")
    assert (result.returncode, result.stdout) == (0, "")
    assert result.stderr.startswith("spillway: this dry run has no figures")
    assert result.stderr.count("\n") == 1


def test_what_runs_for_real_states_nothing() -> None:
    result = spillway("emulate", "--", "true")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_modules_whose_parameters_have_no_shape_yet_are_no_obstacle() -> None:
    program = (
        "import torch; torch.nn.LazyLinear(8).cuda()(torch.ones(4, 4096, device='cuda')).sum().backward()"
    )
    result = spillway(*DRY, "--", sys.executable, "-c", program)
    assert result.returncode == 0, result.stderr
    assert "fits    yes" in result.stderr


def test_a_program_can_be_ended_after_some_steps() -> None:
    result = run_dry("--steps", "2", JOB_ENDS="status")
    assert (result.returncode, result.stdout) == (0, "")
    assert "(median of 1 after the first)" in result.stderr


def test_a_report_has_it_too(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    document, _, page = asked(tmp_path, "--report", folder, "--samples-per-step", "8")
    reported = spillway("report", folder)
    assert reported.returncode == 0
    assert "This is a dry run: nothing was computed" in " ".join(reported.stdout.split())
    html = (folder / "report.html").read_text()
    # The steps after the first, though nothing moved: the device's own ends, to the last.
    step = document["runs"][0]["processes"][0]["steps"]
    by_step = re.findall(r"<tr><td[^>]*>(\d)</td><td[^>]*>(.*?)</td>", html.split("<h2>Steps</h2>")[1])
    assert [number for number, _ in by_step] == ["0", "1", "2", "3"] and by_step[0][1] == "–"
    # What the host still does when a step ends goes to it or to the next one, as the machine's load has it.
    taken = [float(text.removesuffix(" ms")) for _, text in by_step[1:]]
    assert all(abs(ms / step["median_ms"] - 1) < 0.05 for ms in taken), (taken, step)
    assert f"; {step['samples_per_second']:.4g} samples per second</li>" in html
    assert html.count("<h2>Dry run</h2>") == 1
    (fits,) = re.findall("<li>(fits: .*?)</li>", html)
    assert fits == "fits: yes"
    assert "(median of 3 after the first)" in html
    largest = device_of(document)["largest_at_peak"][0]
    assert largest["lines"].split(", ")[0].replace("<", "&lt;").replace(">", "&gt;") in html
    assert "at the peak" in page


def test_a_program_s_lines_are_known_in_folders_of_any_name(tmp_path: Path) -> None:
    program = tmp_path / "torch" / "spillway" / "train.py"
    program.parent.mkdir(parents=True)
    program.write_text(JOB.read_text())
    output = tmp_path / "answer.json"
    result = spillway("dry-run", "--json", output, "--", sys.executable, program, JOB_STEPS="1")
    assert result.returncode == 0
    largest = device_of(json.loads(output.read_text()))["largest_at_peak"]
    assert all("train.py:" in each["lines"].split(", ")[0] for each in largest if each["bytes"] > 1 << 20)


ADAM = """
import torch
with torch.device("cuda"):
    net = torch.nn.Sequential(*[torch.nn.Linear(4096, 4096, bias=False) for _ in range(4)]).half()
    x = torch.zeros(8, 4096, dtype=torch.half)
optimizer = torch.optim.AdamW(net.parameters())
net(x).sum().backward()
optimizer.step()
"""


def test_states_for_which_memory_ended_are_optimizer_states(tmp_path: Path) -> None:
    output = tmp_path / "answer.json"
    arguments = ("dry-run", "--memory", "400MiB", "--json", output)
    result = spillway(*arguments, "--", sys.executable, "-c", ADAM)
    assert result.returncode == 1
    device = device_of(json.loads(output.read_text()))
    assert device["out_of_memory"]["times"] >= 1
    held = device["allocated_at_peak_bytes"]
    assert held["optimizer_states"] >= 64 << 20
    assert "optimizer_temporaries" not in held
