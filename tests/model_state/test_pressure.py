# SPDX-License-Identifier: Apache-2.0
"""Model state that is larger than the budget leaves the GPU, without chaos."""

from conftest import check_clean, check_equal, run

# The plan of activations does not count on model state being offloaded, and finds the budget too small.
OPTIONS = ("--check", "--budget=48MiB", "--over-budget=warn", "--model-state", "--schedule=late")


def test_a_run_under_pressure_has_equal_bits():
    runs = run("pressure.py"), run("pressure.py", options=OPTIONS)
    check_equal("model_state_larger_than_the_budget", *runs)
    check_clean(*runs)
