# SPDX-License-Identifier: Apache-2.0
"""The page of models beside checkpointing comes from their runs, and lists where checkpointing is faster."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from bench.models import page, running
from bench.models.running import MODELS, NO_ROOM, WAYS, Loop
from bench.results import GIB, RunFailed


def ours(ms: float) -> dict[str, Any]:
    curve = [
        {"budget": 1 * GIB, "ms": 900.0, "optimality": 0.25},
        {"budget": 2 * GIB, "ms": 100.0, "optimality": 0.875},
        {"budget": 4 * GIB, "ms": 90.0, "optimality": 0.975},
    ]
    return {"ms": ms, "steps": [500.0, 90.0, *(ms * factor for factor in range(1, 11))], "curve": curve}


def found() -> dict[str, Any]:
    way = {"ms": 100.0, "reserved": 2 * GIB, "steps": [], "curve": []}
    return {
        "vit": {
            "plain": {**way, "ms": 80.0},
            "checkpoint": {**way, "ours": ours(90.0)},
            "save_on_cpu": {**way, "reserved": GIB, "ours": ours(125.0)},
        },
        "lstm": {
            "plain": way,
            "checkpoint": {**way, "ours": {"failed": "too small"}},
            "save_on_cpu": {"failed": NO_ROOM},
        },
    }


def test_a_ratio_is_of_the_same_memory() -> None:
    vit, lstm = page.rows(found())
    assert vit == (MODELS["vit"], "80.0", "100.0", "2.0", "90.0", "0.90", "100.0", "1.0", "125.0", "1.25")
    assert lstm == (MODELS["lstm"], "100.0", "100.0", "2.0", "failed", "", NO_ROOM, "", "", "")


def test_a_slower_budget_is_listed() -> None:
    assert page.slower({"autocast": found()}) == [f"{MODELS['vit']} (autocast, save_on_cpu: 1.25)"]
    result = {
        "command": [],
        "date": "",
        "versions": {"torch": "", **dict.fromkeys(page.PACKAGES, "")},
        "profiles": {"h200": {"autocast": found()}},
    }
    assert page.lines(result)[-1].endswith("ViT-L/16, batch 128 (autocast, save_on_cpu: 1.25).")
    result["profiles"] = {"h200": {"autocast": {"vit": {**found()["vit"], "save_on_cpu": {"failed": ""}}}}}
    assert page.lines(result)[-1] == "Slower than checkpointing: none."


def test_the_smallest_budget_stands_apart() -> None:
    assert list(page.optimalities(found())) == [(MODELS["vit"], "1.0", "0.25", "0.88", "0.88", "0.88")]


def test_the_first_two_steps_are_not_shown() -> None:
    (row,) = page.first_steps(found())
    assert row == (MODELS["vit"], *(f"{factor:.2f}" for factor in range(1, 9)))


def test_a_run_that_fails_has_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(self: Loop, way: str, budget: int | None = None) -> dict[str, Any]:
        if way == "save_on_cpu":
            raise RunFailed("no memory")
        return {"ms": 1.0, "reserved": 7, "way": way, "budget": budget}

    monkeypatch.setattr(Loop, "run", run)
    measured = Loop("vit", "autocast", "h200").measure()
    assert measured["save_on_cpu"] == {"failed": "no memory"}
    assert measured["checkpoint"]["ours"] == {"ms": 1.0, "reserved": 7, "way": "plain", "budget": 7}


def test_a_run_has_its_budget_and_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    commands = []

    def output_of(command: list[str], *others: Any, **more: Any) -> str:
        commands.append(command)
        return 'measured: {"steps": [9.0, 2.0, 3.0, 3.0, 3.0, 4.0, 4.0]}'

    monkeypatch.setattr(running, "output_of", output_of)
    assert Loop("vit", "autocast", "h200").run("plain", 77)["ms"] == 3.0
    (command,) = commands
    assert command[command.index("--budget") + 1] == "77"
    assert command[-4:-1] == ["vit", "plain", "autocast"]
    monkeypatch.setattr(running, "output_of", lambda *given, **more: "nothing")
    with pytest.raises(RunFailed, match="printed no measurement"):
        Loop("vit", "autocast", "h200").run("plain")


def test_a_loop_trains_in_a_dry_run() -> None:
    one = Loop("lstm", "bfloat16", "h200")
    plain, checkpointed, on_host = (one.run(way) for way in ("plain", "checkpoint", "save_on_cpu"))
    assert on_host["reserved"] < checkpointed["reserved"] < plain["reserved"]
    assert plain["ms"] < checkpointed["ms"] < on_host["ms"]
    assert Loop("lstm", "autocast", "h200").run("plain")["reserved"] > plain["reserved"]
    assert not plain["curve"]
    ours = one.run("plain", checkpointed["reserved"])
    assert ours["reserved"] <= checkpointed["reserved"]
    assert ours["curve"]


def test_each_model_has_a_loop() -> None:
    programs = Path(page.__file__).with_name("programs")
    text = "".join((programs / name).read_text() for name in ("sequences.py", "vision.py"))
    assert {name for name in re.findall(r"^def (\w+)\(\) -> Job", text, re.MULTILINE)} == set(MODELS)
    assert set(WAYS) == {"checkpoint", "save_on_cpu"}
