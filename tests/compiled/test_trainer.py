# SPDX-License-Identifier: Apache-2.0
"""`transformers.Trainer(torch_compile=True)` in a job."""

import importlib.util

import pytest
from conftest import ran

MISSING = [name for name in ("transformers", "accelerate") if importlib.util.find_spec(name) is None]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")


def ran_trainers(*options):
    done = ran(*options, program="trainer.py")
    assert done.status == 0, done.errors
    assert done.errors.splitlines()[-1] == "spillway-check: 0 races", done.errors
    return done.cases["eager"], done.cases["compiled"]


def test_its_bits_graphs_and_handles_are_those_of_the_plain_run():
    (_, plain), (_, ours) = ran_trainers(), ran_trainers("--ratio=1")
    assert {**ours, "peak": 0} == {**plain, "peak": 0}
    assert ours["graphs"] > 0


def test_its_peak_is_that_of_eager_mode():
    """Within the 5 % that graphs add by keeping a tensor until its last use."""
    (_, plain), (eager, ours) = ran_trainers(), ran_trainers("--ratio=1")
    assert ours["peak"] <= eager["peak"] * 1.05
    assert ours["peak"] < plain["peak"] * 0.75
