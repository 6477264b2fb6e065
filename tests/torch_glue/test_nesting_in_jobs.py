# SPDX-License-Identifier: Apache-2.0
"""Nestings of regions and checkpoints in a job that Spillway has been given from outside."""

import pytest

SOURCE = """
import spillway, torch
import cases
cases.load()
from cases import nesting_generated
assert "job" in spillway.stats()["tags"]
nesting_generated.each_nesting_of_two_has_plains_gradients()
nesting_generated.a_recomputing_region_inside_a_checkpoint_has_plains_gradients()
nesting_generated.random_nestings_have_plains_gradients()
torch.cuda.synchronize()
spillway.step()
report(spillway.stats()["devices"][0]["residency"]["stashed_bytes"])
"""
JOBS = {
    "ratio": {"SPILLWAY_OFFLOAD_RATIO": "1"},
    "recompute": {"SPILLWAY_RECOMPUTE": "1"},
    "both": {"SPILLWAY_OFFLOAD_RATIO": "1", "SPILLWAY_RECOMPUTE": "1"},
    "budget": {"SPILLWAY_BUDGET": "1GiB"},
}


@pytest.mark.parametrize("job", JOBS)
def test_nestings_have_plains_gradients_in_a_job(program, job):
    assert program(SOURCE, **JOBS[job]) > 0
