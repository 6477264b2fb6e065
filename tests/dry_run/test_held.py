# SPDX-License-Identifier: Apache-2.0
"""What a device holds under a budget, from a process's second step on, also while plans settle."""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from conftest import spillway

PROBES = Path(__file__).parents[2] / "bench" / "figures" / "probes"
STEPS = 14

JOB = f"""
import contextlib, json, sys
sys.path.insert(0, {str(PROBES)!r})
import spillway, torch
from full_size import TransformerBlock

def main(budget):
    spillway.use_allocator()
    with torch.device("cuda"):
        blocks = [TransformerBlock(1024, 16, 0.0, False) for _ in range(8)]
        net = torch.nn.Sequential(*blocks).to(torch.bfloat16)
        x = torch.zeros(64, 197, 1024, dtype=torch.bfloat16, requires_grad=True)
    optimizer = torch.optim.AdamW(net.parameters(), foreach=True)
    region = spillway.offload(budget=budget, tag="held") if budget else contextlib.nullcontext()
    found = {{"held": [], "peak": [], "smallest": None}}
    try:
        for _ in range({STEPS}):
            torch.cuda.reset_peak_memory_stats()
            with region:
                loss = net(x).sum()
            loss.backward()
            del loss
            optimizer.step()
            optimizer.zero_grad()
            torch.cuda.synchronize()
            found["held"].append(torch.cuda.max_memory_reserved())
            found["peak"].append(torch.cuda.max_memory_allocated())
    except spillway.BudgetError as error:
        found["smallest"] = error.smallest
    found["replayed"] = spillway.stats()["devices"][0]["heap"]["replayed_allocations"]
    explained = spillway.explain("held")
    found["least"] = explained and explained.curve[0].budget
    print(json.dumps(found))

main(int(sys.argv[1]))
"""


@cache
def steps(budget: int) -> dict[str, Any]:
    result = spillway("dry-run", "h200", "--", sys.executable, "-c", JOB, str(budget))
    assert result.returncode == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout.splitlines()[0])
    return found


@pytest.mark.parametrize("share", [0.9, 0.5])
def test_every_step_but_the_first_holds_no_more_than_the_budget(share: float) -> None:
    plain = max(steps(0)["peak"])
    budget = int(share * plain)

    found = steps(budget)

    assert len(found["held"]) == STEPS
    assert max(found["held"][1:]) <= budget
    assert max(found["peak"][2:]) >= 0.9 * budget  # and it is used
    assert found["replayed"] > 0


def test_the_smallest_budget_that_an_error_names_is_held_as_well() -> None:
    budget = steps(max(steps(0)["peak"]) // 2)["least"] // 2  # far below what fragmentation alone explains
    refused = [steps(budget)]  # the first step's is a lower bound
    while refused[-1]["smallest"] is not None and len(refused) <= 3:
        assert refused[-1]["smallest"] > budget
        budget = refused[-1]["smallest"]
        refused.append(steps(budget))

    found = refused.pop()
    assert refused
    assert len(found["held"]) == STEPS
    assert max(found["held"][1:]) <= budget
