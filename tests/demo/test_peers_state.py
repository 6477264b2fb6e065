# SPDX-License-Identifier: Apache-2.0
"""Results of systems that keep model state on the host come from their runs."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest
import torch

from bench.figures.registry import all_kept
from bench.peers import claims, model_state, model_state_page
from bench.peers.host import LARGE, HostShapes
from bench.results import output_of


def run(parameters: str, **more: Any) -> dict[str, Any]:
    return {"losses": "l", "parameters": parameters, "apart": 0.25, "unchanged": False, **more}


def found() -> dict[str, Any]:
    plain = {name: run(f"plain {name}") for name in model_state.ASKED}
    fused = {name: run(f"fused {name}") for name in model_state.ASKED}
    failed = {"failed": "RuntimeError: no | such thing"}
    peer = {
        "steps": run("fused steps"),
        "clip": run("fused steps"),
        "accumulate": run("another"),
        "schedule": failed,
    }
    ours = {name: {**one, "fetched": 1} for name, one in plain.items()}
    one = {"peak": 1 << 30, "reserved": 2 << 30, "ms": 600.0, "free_ms": 300.0}
    return {
        "bits": {"plain": plain, "fused": fused, "spillway": ours, "torchao": peer},
        "full_size": {
            "1": {
                "plain": {"peak": 3 << 30, "reserved": 3 << 30, "ms": 100.0},
                "torchao": {**one, "ours": {"budget": 2 << 30, "ms": 200.0}},
                "fsdp2": {**one, "ours": {"budget": 2 << 30, "ms": 400.0}},
                "bitsandbytes": failed,
            }
        },
    }


def test_an_outcome_names_whose_bits_came_out() -> None:
    bits = found()["bits"]
    named = [model_state.outcome(bits, "torchao", name) for name in model_state.ASKED]
    assert named == [
        "equal to `fused=True`",
        "silently ignored",
        "other bits: updates 25.0% apart",
        "raises RuntimeError: no | such thing",
    ]
    assert model_state.outcome(bits, "spillway", "clip") == "equal"


def test_a_loss_that_differs_is_other_bits() -> None:
    bits = found()["bits"]
    bits["spillway"]["steps"]["losses"] = "another"
    assert model_state.outcome(bits, "spillway", "steps").startswith("other bits")


def test_two_schedules_that_differ_are_a_race() -> None:
    bits = found()["bits"]
    bits["torchao"]["clip, eager"] = run("fused clip")
    assert model_state_page.cell(bits, "torchao", "clip") == (
        "a race: silently ignored, or equal to `fused=True`"
    )
    bits["torchao"]["clip, eager"] = run("fused steps")
    assert model_state_page.cell(bits, "torchao", "clip") == "silently ignored"


def test_after_a_failed_first_run_nothing_more_is_asked() -> None:
    runs: list[tuple[str, ...]] = []

    def recorded(way: str, *how: str) -> dict[str, Any]:
        runs.append((way, *how[:-1]))
        return {"failed": "cannot run: no"} if way == "bitsandbytes" else run("same")

    measured = model_state.bits(recorded)
    assert [how for how in runs if how[0] == "bitsandbytes"] == [("bitsandbytes",)]
    assert ("torchao", "clip", "eager") in runs
    assert model_state.outcome(measured, "bitsandbytes", "steps") == "cannot run: no"


def test_what_left_the_parameters_as_they_were_trains_nothing() -> None:
    bits = found()["bits"]
    bits["torchao"]["accumulate"]["unchanged"] = True
    assert model_state.outcome(bits, "torchao", "accumulate") == "silently trains nothing"


@pytest.mark.parametrize("broken", ["bits", "moves nothing", "slower", "no budget"])
def test_a_claim_fails_if_it_is_not_so(broken: str) -> None:
    result = found()
    assert all_kept(claims.of_model_state(result))
    torchao = result["full_size"]["1"]["torchao"]
    if broken == "bits":
        result["bits"]["spillway"]["clip"]["parameters"] = "another"
    elif broken == "moves nothing":
        result["bits"]["spillway"]["clip"]["fetched"] = 0
    elif broken == "slower":
        torchao["ours"]["ms"] = 601.0
    else:
        torchao["ours"] = {"budget": 2 << 30, "failed": "BudgetError"}
    short = [each for each in claims.of_model_state(result) if each["status"] == "short"]
    assert len(short) == 1


@pytest.mark.parametrize(("ours", "worst"), [(50.0, 1.2), (150.0, 1.5)])
def test_times_are_claimed_of_the_worst_batch(ours: float, worst: float) -> None:
    batches = {
        "1": {"torchao": {"ms": 100.0, "ours": {"ms": 120.0}}},
        "16": {"torchao": {"ms": 100.0, "ours": {"ms": ours}}},
    }
    assert model_state.slower(batches) == {"torchao": worst}


def test_memory_of_the_host_stays_pinned() -> None:
    program = (
        "import torch; from bench.peers.host import HostShapes\n"
        f"with HostShapes(0): a = torch.empty({LARGE}, pin_memory=True)\n"
        "with HostShapes(0): b = [torch.zeros_like(a, pin_memory=True), torch.zeros_like(a).pin_memory()]\n"
        "print([each.is_pinned() for each in (a, *b)])"
    )
    command = [sys.executable, "-m", "spillway", "emulate", "--", sys.executable, "-c", program]
    assert output_of(command, os.environ).strip() == "[True, True, True]"


def test_the_page_names_what_is_faster_and_what_was_raised() -> None:
    result = found()
    assert model_state_page.faster(result["full_size"]) == [
        "FSDP2 `CPUOffloadPolicy` (batch 1, only with the host's arithmetic free)"
    ]
    result["full_size"]["1"]["torchao"]["ours"]["ms"] = 601.0
    assert "torchao `CPUOffloadOptimizer` (batch 1)" in model_state_page.faster(result["full_size"])
    versions = {"torch": "2.11.0", "torchao": "1", "deepspeed": "2", "bitsandbytes": "3", "accelerate": "4"}
    text = "\n".join(
        model_state_page.lines({**result, "versions": versions, "date": "d", "command": ["scripts/peers"]})
    )
    assert "raises RuntimeError: no \\| such thing |" in text
    assert "| torchao `CPUOffloadOptimizer` | 1.00 | 2.00 | 600 | 300 | 601 |" in text


def test_large_tensors_of_the_host_have_shapes_only() -> None:
    large, small = torch.ones(LARGE), torch.ones(4)
    with HostShapes(0):
        large.add_(1)
        small.add_(1)
        assert (large + 1).shape == large.shape
        assert large.sum() == 1
        assert large.view(2, -1).data_ptr() == large.data_ptr()
    assert large.sum() == LARGE
    assert small.sum() == 8


def test_a_budget_below_the_model_state_gives_the_bits_of_the_plain_run(tmp_path: Any) -> None:
    plain, ours = (
        model_state.emulated(way, "clip", "accumulate", "schedule") for way in ("plain", "spillway")
    )
    assert ours["parameters"] == plain["parameters"]
    assert ours["losses"] == plain["losses"]
    assert ours["fetched"] > 0
    assert plain["fetched"] == 0
