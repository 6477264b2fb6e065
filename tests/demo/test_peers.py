# SPDX-License-Identifier: Apache-2.0
"""Claims about Spillway beside others come from a recorded result."""

from __future__ import annotations

from typing import Any

from bench.figures.registry import all_kept
from bench.pages import PAGES
from bench.peers import budgets, claims


def found() -> dict[str, Any]:
    def way(ms: float, ours: float, budget: int = 1 << 30) -> dict[str, Any]:
        return {"reserved": 1 << 30, "ms": ms, "ours": {"ms": ours, "budget": budget}}

    plain = {"reserved": 2 << 30, "ms": 100}
    return {
        "beside": {
            "gpt2-xl": {"plain": plain, "checkpoint": way(130, 117), "save_on_cpu": way(400, 80, 3 << 29)},
            "lora-8b-qv": {"plain": plain, "checkpoint": way(150, 120), "save_on_cpu": way(400, 300)},
        },
        "capacity": {
            "plain": {"1": 1000.0, "2": 1100.0},
            "checkpoint": {"1": 800.0, "2": 900.0, "3": 950.0},
            "ours": {"1": 1000.0, "2": 1100.0, "4": 1090.0, "5": 1050.0, "6": 1000.0},
        },
    }


def test_the_worst_model_counts() -> None:
    assert budgets.slower(found()) == {"checkpoint": 0.9, "save_on_cpu": 0.75}


def test_the_largest_batch_must_keep_the_tokens_per_second() -> None:
    times, share = budgets.batches(found())
    assert (times, share) == (2.5, 1050 / 1100)


def test_a_claim_fails_if_another_way_is_faster() -> None:
    result = found()
    assert all_kept(claims.of_budgets(result))
    result["beside"]["gpt2-xl"]["checkpoint"]["ours"]["ms"] = 131
    assert [claim["status"] for claim in claims.of_budgets(result)] == ["short", "ok", "ok", "ok"]


def test_the_section_states_where_more_is_needed_or_nothing_fits() -> None:
    versions = {"torch": "2.11.0", "trl": "1", "torchtune": None}
    result = {"versions": versions, "date": "d", "command": ["scripts/peers"], "budgets": found()}
    text = "\n".join(PAGES["peers"].lines(result))
    assert "torch 2.11.0, trl 1." in text
    gpt2 = "| GPT-2 XL, dropout, batch 8, sequence 1024 |"
    assert f"{gpt2} save_on_cpu | 1.00 | 400 | 80 in 1.50 GiB |" in text
    assert f"{gpt2} checkpoint each block | 1.00 | 130 | 117 |" in text
    assert "| 3 |  | 950 |  |" in text
