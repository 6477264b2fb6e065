# SPDX-License-Identifier: Apache-2.0
"""Several ways to run one program, side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import job
import pytest
from conftest import asked, device_of, run_dry
from spillway.report.sizes import size

ACTIVATION = job.ROWS * job.WIDTH * 2
WAYS = ("plain", "checkpoint", "recompute", "ratio=1", "budget=1500MiB")


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str, str]:
    return asked(tmp_path_factory.mktemp("compared"), "--compare", ",".join(WAYS), JOB_STEPS="7")


def process_of(document: dict[str, Any], way: str) -> dict[str, Any]:
    (process,) = document["runs"][WAYS.index(way)]["processes"]
    found: dict[str, Any] = process
    return found


def test_each_runs_in_a_process_of_its_own_and_the_first_one_is_heard(
    compared: tuple[dict[str, Any], str, str],
) -> None:
    document, printed, _ = compared
    assert [run["alternative"] for run in document["runs"]] == list(WAYS)
    assert [run["fits"] for run in document["runs"]] == [True] * len(WAYS)
    assert len({process_of(document, way)["process"] for way in WAYS}) == len(WAYS)
    assert int(printed) == device_of(document)["peak_allocated_bytes"]


def test_a_checkpointed_layer_is_recomputed_and_keeps_its_input(
    compared: tuple[dict[str, Any], str, str],
) -> None:
    document, _, _ = compared
    assert process_of(document, "checkpoint")["checkpointed_layers"] == job.LAYERS
    assert process_of(document, "plain")["checkpointed_layers"] is None

    def products(way: str) -> float:
        process = process_of(document, way)
        return float(process["devices"][0]["shares"]["products"] * process["steps"]["median_ms"])

    # One more product of each layer: to those of the plain step as 4 * layers - 1 to 3 * layers - 1.
    expected = (4 * job.LAYERS - 1) / (3 * job.LAYERS - 1)
    assert products("checkpoint") / products("plain") == pytest.approx(expected, rel=1e-9)
    saved = [
        process_of(document, way)["devices"][0]["peak_allocated_bytes"] for way in ("plain", "checkpoint")
    ]
    assert saved[0] - saved[1] >= (job.LAYERS - 2) * ACTIVATION


def test_what_is_recomputed_takes_no_memory_meanwhile(compared: tuple[dict[str, Any], str, str]) -> None:
    document, _, _ = compared
    plain, recompute = (process_of(document, way)["devices"][0] for way in ("plain", "recompute"))
    assert plain["peak_allocated_bytes"] - recompute["peak_allocated_bytes"] >= (job.LAYERS - 2) * ACTIVATION
    # What runs again is no product.
    times = [process_of(document, way)["steps"]["median_ms"] for way in ("plain", "recompute")]
    products = [each["shares"]["products"] * ms for each, ms in zip((plain, recompute), times, strict=True)]
    assert products[0] == pytest.approx(products[1], rel=1e-9)


def test_offloaded_storages_are_fetched(compared: tuple[dict[str, Any], str, str]) -> None:
    document, _, _ = compared
    copied = {way: process_of(document, way)["copied_per_step"] for way in WAYS}
    assert copied["plain"] == copied["checkpoint"] == {"to_host_bytes": 0, "to_device_bytes": 0}
    moved = copied["ratio=1"]["to_host_bytes"]
    assert moved >= 2 * (job.LAYERS - 1) * ACTIVATION
    assert copied["ratio=1"]["to_device_bytes"] == moved
    # What a budget recomputes need not move.
    assert copied["budget=1500MiB"]["to_host_bytes"] < moved


def test_offloaded_storages_are_pinned_on_the_host(compared: tuple[dict[str, Any], str, str]) -> None:
    document, _, table = compared
    pinned = {way: process_of(document, way)["peak_pinned_bytes"] for way in WAYS}
    assert pinned["plain"] == pinned["checkpoint"] < 1 << 20
    moved = process_of(document, "ratio=1")["copied_per_step"]["to_host_bytes"]
    assert moved <= pinned["ratio=1"] < 2 * moved
    line = next(line for line in table.splitlines() if line.startswith("ratio=1"))
    assert line.endswith(f"{size(pinned['ratio=1'])}")


def test_the_table_has_a_line_for_each(compared: tuple[dict[str, Any], str, str]) -> None:
    document, _, table = compared
    lines = {line.split()[0]: line.split() for line in table.splitlines() if line.split()}
    first = process_of(document, "plain")["steps"]["median_ms"]
    for way in WAYS:
        step = process_of(document, way)["steps"]["median_ms"]
        assert "yes" in lines[way]
        assert f"{step / first:.2f}" in lines[way]


def test_what_does_not_fit_states_how_much_it_needs(tmp_path: Path) -> None:
    document, printed, table = asked(
        tmp_path, "--compare", "ratio=1,plain", "--memory", "1400MiB", JOB_STEPS="2"
    )
    fits, does_not = document["runs"]
    assert (fits["fits"], does_not["fits"], does_not["exit_status"]) == (True, False, 1)
    assert device_of(document, 1)["capacity_bytes"] == 1400 << 20
    (needs,) = does_not["with_more_memory"]["processes"]
    needed = needs["devices"][0]["peak_allocated_bytes"]
    assert needed > 1400 << 20
    line = next(line for line in table.splitlines() if line.startswith("plain"))
    assert f"{needed / 2**30:.1f} GiB" in line
    assert " no " in line
    assert int(printed) < 1400 << 20


def test_steps_before_a_plan_has_settled_are_not_compared(tmp_path: Path) -> None:
    ways = "plain,budget=1500MiB"
    _, _, table = asked(tmp_path, "--compare", ways, JOB_STEPS="3")
    line = next(line.split() for line in table.splitlines() if line.startswith("budget"))
    assert line.count("–") == 4  # step, relative, and what is copied
    assert "budget=1500MiB: its step is unknown: a budget's first steps differ" in table


def test_with_a_number_of_steps_a_budget_settles_first(tmp_path: Path) -> None:
    ways = "plain,budget=60GiB"
    document, _, _ = asked(tmp_path, "--compare", ways, "--steps", "3", JOB_STEPS="60")
    plain, budget = (run["processes"][0]["steps"] for run in document["runs"])
    assert plain["count"] == 3 < budget["count"] < 60
    assert budget["median_ms"] == pytest.approx(plain["median_ms"], rel=0.02)
    assert document["runs"][1]["processes"][0]["copied_per_step"]["to_host_bytes"] == 0


def test_a_missed_budget_is_reported_as_such(tmp_path: Path) -> None:
    result = run_dry("--compare", "plain,budget=200MiB", JOB_STEPS="6")
    assert result.returncode == 1
    assert "budget=200MiB: does not stay within its budget: budget 200.0 MiB " in result.stderr


def test_a_model_without_repeated_layers_has_nothing_to_checkpoint(tmp_path: Path) -> None:
    output = tmp_path / "answer.json"
    result = run_dry("--compare", "plain,checkpoint", "--json", output, JOB_UNROLLED="1", JOB_STEPS="1")
    assert result.returncode == 1
    assert "checkpoint: the model has no repeated layers: " in result.stderr
    assert len(json.loads(output.read_text())["runs"]) == 2


def test_an_alternative_that_fails_states_why() -> None:
    result = run_dry("--compare", "plain,ratio=1", JOB_ENDS="moving fails", JOB_STEPS="1")
    assert result.returncode == 1
    assert "ratio=1: failed with status 1: ValueError: not with a ratio\n" in result.stderr
    assert "Traceback" not in result.stderr


def test_the_table_has_that_note_too_where_code_was_compiled(tmp_path: Path) -> None:
    said = "the step time does not predict torch.compile's speed"
    tables = [
        asked(tmp_path, "--compare", "plain", JOB_COMPILED=compiled, JOB_STEPS="1")[2]
        for compiled in ("1", "")
    ]
    assert [said in " ".join(table.split()) for table in tables] == [True, False]


def test_an_alternative_that_fails_with_more_memory_states_why(tmp_path: Path) -> None:
    output = tmp_path / "answer.json"
    result = run_dry(
        "--compare", "plain,ratio=1", "--memory", "1000MiB", "--json", output, JOB_ENDS="moving fails late"
    )
    fails = json.loads(output.read_text())["runs"][1]
    assert (fails["fits"], fails["with_more_memory"]) == (False, None)
    why = "with more memory it failed with status 1: ValueError: not with a ratio"
    assert fails["error"] == why
    assert f"ratio=1: {why}\n" in result.stderr


def test_offloaded_storages_take_no_host_memory_in_a_dry_run(tmp_path: Path) -> None:
    document, printed, _ = asked(tmp_path, "--ratio", "1", JOB_LAYERS="24", JOB_STEPS="2", JOB_ENDS="memory")
    (process,) = document["runs"][0]["processes"]
    assert process["copied_per_step"]["to_host_bytes"] > 5 << 30
    assert int(printed.split()[1]) < 2 << 30
