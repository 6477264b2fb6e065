# SPDX-License-Identifier: Apache-2.0
"""Optimizer states that leave the GPU for a step's passes are fetched once, before the optimizer's step."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from conftest import spillway

PROBES = Path(__file__).parents[2] / "bench" / "figures" / "probes"

JOB = f"""
import json, sys
sys.path.insert(0, {str(PROBES)!r})
import spillway, torch
from full_size import Head, LlamaBlock

with torch.device("cuda"):
    net = torch.nn.Sequential(*(LlamaBlock() for _ in range(8)), Head(32000)).to(torch.bfloat16)
optimizer = torch.optim.AdamW(net.parameters())
fetched = [0]
for _ in range(6):
    for _ in range(4):
        net(torch.randn(1, 4096, 4096, dtype=torch.bfloat16, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    fetched.append(spillway.stats()["model_state"]["fetched_bytes"])
states = sum(each.nbytes for state in optimizer.state.values() for each in state.values())
by_step = [now - before for before, now in zip(fetched, fetched[1:])]
print(json.dumps({{"fetched": by_step, "states": states}}))
"""


def fetched_by_step(budget: str) -> dict[str, Any]:
    result = spillway("dry-run", "h200", f"--budget={budget}", "--", sys.executable, "-c", JOB)
    assert result.returncode == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout.splitlines()[0])
    return found


def test_states_are_not_prefetched_into_room_that_a_pass_needs():
    found = fetched_by_step("10GiB")
    # At the end of each forward pass all of the budget is needed for the rest, so all states leave.
    assert found["fetched"][-1] > 0.95 * found["states"]
    for step in found["fetched"][2:]:
        assert step <= 1.1 * found["states"]
