# SPDX-License-Identifier: Apache-2.0
"""A budget never ends a job that fits, and a budget that an error names works.

Over random models, optimizers and sequence lengths, in dry runs.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from conftest import spillway

JOB = Path(__file__).parent / "budget_job.py"
SEEDS = range(int(os.environ.get("BUDGET_SEEDS", "2")))  # more in the slow tests
DRY = ("dry-run", "h200")
PAGE = 2 << 20


def job(seed: int, *options: str, lengths: str = "") -> subprocess.CompletedProcess[str]:
    return spillway(*DRY, *options, "--", sys.executable, JOB, str(seed), *filter(None, [lengths]))


def reserved(result: subprocess.CompletedProcess[str]) -> list[int]:
    assert result.returncode == 0, result.stderr[-2000:]
    found: list[int] = json.loads(result.stdout.splitlines()[0])
    return found


@cache
def at_ratio_1(seed: int, lengths: str = "") -> int:
    return max(reserved(job(seed, "--ratio", "1", lengths=lengths)))


@pytest.mark.parametrize("seed", SEEDS)
def test_what_ratio_1_reserves_is_a_budget_that_is_kept_in_each_step(seed: int) -> None:
    for share in (1.0, 1.02, 1.2):
        budget = int(share * at_ratio_1(seed))

        found = reserved(job(seed, "--budget", str(budget)))

        # Without any room beside ratio 1's own, one block may lie otherwise.
        assert max(found) <= budget + (PAGE if share == 1 else 0), (found, budget, seed)


@pytest.mark.parametrize("seed", [5, 8])
def test_a_larger_batch_late_in_a_run_is_served(seed: int) -> None:
    budget = int(1.05 * at_ratio_1(seed, "late"))

    found = reserved(job(seed, "--budget", str(budget), lengths="late"))

    assert max(found) <= budget, (found, budget)


@pytest.mark.parametrize("seed", [1, 8])
def test_what_cannot_be_served_is_an_error_or_a_warning_with_step_and_shape(seed: int) -> None:
    late, steps = 7, 8
    peaks = reserved(job(seed, "--ratio", "1", lengths="late"))
    budget = (peaks[0] + peaks[late - 1]) // 2
    options = ("--budget", str(budget), "--keep-model-state")  # otherwise that makes room
    failed = job(seed, *options, lengths="late")
    warned = job(seed, *options, "--over-budget", "warn", lengths="late")

    # A warning only where the next step of that shape follows a plan for the budget.
    assert failed.returncode == 1 or "RuntimeWarning: budget " in failed.stderr
    for result in (failed, warned):
        assert re.search(rf"step {late} \(first saved tensor: \[[\d, ]+\]\) need", result.stderr)
    found = reserved(warned)
    assert len(found) == steps
    assert found[late - 1] > budget


@pytest.mark.parametrize("seed", SEEDS)
def test_a_step_that_exceeds_its_budget_is_never_silent(seed: int) -> None:
    for share in (0.9, 0.96):
        budget = int(share * at_ratio_1(seed))

        result = job(seed, "--budget", str(budget), "--over-budget", "warn")

        if max(reserved(result)) > budget + PAGE:
            assert "RuntimeWarning: budget " in result.stderr, (reserved(result), budget)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_budget_that_an_error_names_works(seed: int) -> None:
    failed = job(seed, "--budget", "33MiB", lengths="fixed")

    assert failed.returncode == 1
    named = re.search(r"BudgetError: .* --budget (\w+)", failed.stderr)
    assert named, failed.stderr[-2000:]
    assert len(reserved(job(seed, "--budget", named[1], lengths="fixed"))) == 8  # it trains


def test_a_first_step_that_exceeds_the_budget_is_reported() -> None:
    result = job(5, "--budget", "33MiB", lengths="one")

    assert result.returncode == 0, result.stderr[-2000:]
    assert "RuntimeWarning: budget 33.0 MiB " in result.stderr


EVALUATES = """
import torch
from torch import nn
model = nn.Sequential(*(part for _ in range(6) for part in (nn.Linear(512, 512), nn.GELU()))).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for _ in range(10):
    model(torch.randn(2048, 512, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    with torch.no_grad():
        model(torch.randn(65536, 512, device="cuda"))
"""


def test_what_an_evaluation_reserves_is_not_the_next_step_s(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(EVALUATES)

    result = spillway(*DRY, "--budget", "150MiB", "--", sys.executable, script)

    assert result.returncode == 0, result.stderr[-2000:]


def test_auto_never_raises() -> None:
    assert reserved(job(0, "--budget", "auto"))
