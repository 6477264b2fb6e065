# SPDX-License-Identifier: Apache-2.0
"""Budgets by share and by time, what their plans contain, and plans that are kept in a file."""

import json
import logging
import tempfile
from dataclasses import replace
from pathlib import Path

import spillway
import torch
from spillway._load import glue

from cases import case
from cases.budgets import measured, step
from cases.measure import Copied, last, same_bits


def total():
    return torch.cuda.get_device_properties(0).total_memory


def planned(region, steps=3):
    for _ in range(steps):
        found = step(region)
    return found


@case
def a_budget_may_be_a_share_of_the_gpu():
    for share, expected in ((0.5, total() // 2), ("25%", total() // 4), (1.0, total())):
        planned(spillway.offload(budget=share, tag="share"))
        assert spillway.explain("share").chosen.budget == expected, (share, expected)
        spillway.step()


@case
def auto_is_what_the_gpu_has_for_this_process():
    planned(spillway.offload(budget="auto", tag="auto"))
    budget = spillway.explain("auto").chosen.budget
    assert 0.5 * total() < budget <= 0.95 * total(), (budget, total())
    assert last("auto")["offloaded_bytes"] == 0  # there is plenty


@case
def a_time_limit_asks_for_the_least_memory_within_it():
    plain, least = measured()
    expected = step(spillway.compat.NoOpManager())[0]
    gradient, peak = planned(spillway.offload(time_limit=100, recompute=False, tag="any-time"), 4)
    assert peak == least and same_bits(gradient, expected), (peak, least)
    spillway.step()
    for limit in (1.0, 1.2):
        region = spillway.offload(time_limit=limit, tag="limited")
        gradient, peak = planned(region, 4)
        chosen = spillway.explain("limited").chosen
        assert chosen.seconds <= limit * chosen.compute * (1 + 1e-9), chosen
        assert peak <= plain and same_bits(gradient, expected)
        spillway.step()


@case
def within_a_time_limit_memory_has_the_places_of_a_plan():
    if torch.cuda.memory.get_allocator_backend() != "spillway":
        return  # PyTorch's own allocator has none
    region = spillway.offload(time_limit=100, tag="limited-places")

    def replayed():
        return spillway.stats()["devices"][0]["heap"]["replayed_allocations"]

    rows = 6144  # a page and more for each tensor
    step(region, rows)
    before = replayed()
    for _ in range(12):
        spillway.step()
        step(region, rows)
    assert replayed() > before
    spillway.step()


@case
def how_near_the_limit_its_steps_come_is_logged_at_debug():
    said = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())
    log = logging.getLogger("spillway")
    plain, least = measured()
    region = spillway.offload(budget=(plain + least) // 2, recompute=False, tag="logged")
    log.addHandler(handler)
    log.setLevel(logging.DEBUG)
    try:
        for _ in range(40):
            step(region)
            spillway.step()
    finally:
        log.setLevel(logging.NOTSET)
        log.removeHandler(handler)
    logged = [line for line in said if line.startswith("tag 'logged' on GPU 0: ")]
    assert 1 <= len(logged) <= 6, said  # for each plan, not for each step
    assert all("optimality " in line for line in logged), logged


@case
def nothing_is_explained_before_a_step_has_been_planned():
    assert spillway.explain("nothing") is None
    step(spillway.offload(budget="1GiB", tag="once"))
    assert spillway.explain("once") is None


@case
def an_explanation_states_what_the_steps_do():
    plain, least = measured()
    budget = (plain + least) // 2
    region = spillway.offload(budget=budget, recompute=False, tag="explained")
    planned(region, 4)
    for _ in range(30):  # a plan that is remade has taken no time yet
        found = spillway.explain("explained", points=5)
        if found.taken is not None:
            break
        step(region)
    totals = last("explained")
    assert found.chosen.budget == budget and found.chosen.peak <= budget
    assert found.chosen.offloaded == totals["offloaded_bytes"] > 0
    assert found.chosen.kept == totals["offloadable_bytes"] - totals["offloaded_bytes"]
    assert len(found.curve) == 5
    assert found.curve[0].budget == least and found.curve[-1].budget == plain, found.curve
    assert found.curve[-1].offloaded == 0 and found.curve[-1].slowdown == 1
    assert all(0 < point.optimality <= 1 + 1e-9 for point in found.curve), found.curve
    assert found.taken is not None and found.taken > 0, found.taken
    assert found.optimality == found.chosen.bound / found.taken
    text = str(found)
    assert "optimality" in text and text.count("*") == 1, text
    faster = str(replace(found, taken=found.chosen.bound / 2))
    assert "optimality 200.0%: by the recorded times no plan" in faster, faster
    assert "the last steps were faster than recorded" in faster, faster
    assert str(spillway.planning.Explanation.from_dict(json.loads(json.dumps(found.as_dict())))) == text


@case
def plans_that_a_file_keeps_are_followed_from_the_first_step_on():
    plain, least = measured()
    budget = (plain + least) // 2
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "plans.json"
        region = spillway.offload(budget=budget, recompute=False, tag="first", plans=file)
        planned(region, 4)
        offloaded = last("first")["offloaded_bytes"]
        assert file.exists() and [each.name for each in file.parent.iterdir()] == ["plans.json"]
        spillway.step()
        kept = json.loads(file.read_text())["steps"][0]
        gradient, peak = step(spillway.offload(budget=budget, recompute=False, tag="second", plans=file))
        assert json.loads(json.dumps(glue().known_steps("second", 0))) == [kept]
        storages = {(storage, used) for _, _, storage, used in kept["times"]["marks"]}
        assert storages >= {(each, used) for each in range(len(kept["sizes"])) for used in (False, True)}
        assert last("second")["offloaded_bytes"] == offloaded < last("second")["offloadable_bytes"]
        assert peak <= budget and same_bits(gradient, step(spillway.compat.NoOpManager())[0])


@case
def a_file_keeps_all_shapes_of_all_tags_however_often_a_region_is_made():
    plain = measured()[0]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "plans.json"
        for tag, rows in (("one", 64), ("one", 32), ("two", 16)):
            for _ in range(4):
                step(spillway.offload(budget=plain, recompute=False, tag=tag, plans=file), rows)
            spillway.step()
        for tag in ("one", "two"):  # what the last steps have recorded
            with spillway.offload(budget=plain, recompute=False, tag=tag, plans=file):
                pass
            spillway.step()
        assert len({tuple(each["sizes"]) for each in json.loads(file.read_text())["steps"]}) == 3


@case
def plans_of_another_gpu_are_not_used():
    plain = measured()[0]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "plans.json"
        planned(spillway.offload(budget=plain, recompute=False, tag="here", plans=file), 4)
        document = json.loads(file.read_text())
        document["where"]["gpu"] = "another"
        file.write_text(json.dumps(document))
        spillway.step()
        step(spillway.offload(budget=plain, recompute=False, tag="there", plans=file))
        assert last("there")["offloaded_bytes"] == last("there")["offloadable_bytes"] > 0  # it is recorded


@case
def plans_that_an_older_version_wrote_are_not_used():
    plain = measured()[0]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "plans.json"
        file.write_text(json.dumps({"spillway_plans": 1, "steps": [{"of": "another form"}]}))
        region = spillway.offload(budget=plain, recompute=False, tag="newer", plans=file)
        step(region)
        spillway.step()
        assert last("newer")["offloaded_bytes"] == last("newer")["offloadable_bytes"] > 0  # it is recorded
        planned(region, 4)
        assert json.loads(file.read_text())["spillway_plans"] > 1


@case
def a_file_that_is_no_plans_is_an_error_and_nothing_is_open():
    plain = measured()[0]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "plans.json"
        planned(spillway.offload(budget=plain, recompute=False, tag="right", plans=file), 4)
        right = json.loads(file.read_text())
        spillway.step()
        wrongs = ["", "{", "[]", json.dumps(right | {"spillway_plans": right["spillway_plans"] + 1})]
        for key, value in (
            ("sizes", []),
            ("edges", [5]),
            ("absences", [[99, 0, 1, 1]]),
            ("operands", [[99, 0, 1, 1, [[0, None]]]]),
            ("operands", [[0, 0, 1, 1, [[99, None]]]]),
            ("operands", [[0, 0, 1, 1, [[0, 0]]]]),
            ("operands", [[0, 0, 1, 1, [[0, None]]], [0, 0, 1, 1, [[0, None]]]]),
            ("besides", [1]),
            ("operands_only", [99]),
            ("peaks", [-1]),
        ):
            wrongs.append(json.dumps(right | {"steps": [right["steps"][0] | {key: value}]}))
        for wrong in wrongs:
            file.write_text(wrong)
            try:
                with spillway.offload(budget=plain, tag="wrong", plans=file):
                    raise AssertionError(f"entered with {wrong[:200]}")
            except ValueError as error:
                assert str(file) in str(error) and "Delete it" in str(error), error
                assert "C++" not in str(error), error
            x = torch.randn(64, 100, device="cuda", requires_grad=True)
            with Copied() as copied:
                x.sin().sin().sum().backward()
            assert copied.out == 0


@case
def other_values_are_refused_by_name():
    for wrong, kind, words in (
        ({"budget": 0.0}, ValueError, "budget must be a share"),
        ({"budget": 1.5}, ValueError, "budget must be a share"),
        ({"budget": float("nan")}, ValueError, "budget must be a share"),
        ({"budget": "150%"}, ValueError, "budget must be a share"),
        ({"budget": "much%"}, ValueError, "budget must be"),
        ({"budget": "20XB"}, ValueError, 'such as "80%", or "auto", not '),
        ({"budget": "20"}, ValueError, '"20GiB"'),
        ({"budget": "1GiB", "plans": "/nowhere/plans.json"}, ValueError, "/nowhere"),
        ({"budget": True}, TypeError, "budget must be"),
        ({}, TypeError, "time_limit"),
        ({"time_limit": 0.9}, ValueError, "time_limit must be from 1 to 100"),
        ({"time_limit": "1.05"}, TypeError, "time_limit must be a number"),
        ({"time_limit": True}, TypeError, "time_limit must be a number"),
    ):
        try:
            spillway.offload(**wrong)
        except kind as error:
            assert words in str(error), (wrong, error)
        else:
            raise AssertionError(wrong)
    for points in (1, 0, True, 2.0):
        try:
            spillway.explain(points=points)
        except ValueError as error:
            assert "points" in str(error)
        else:
            raise AssertionError(points)
