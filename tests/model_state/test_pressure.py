# SPDX-License-Identifier: Apache-2.0
"""Model state that is larger than the budget leaves the GPU, without chaos. What fits stays."""

import re

from conftest import check_clean, check_equal, run

BUDGET = 112
OPTIONS = ("--check", f"--budget={BUDGET}MiB", "--schedule=late")


def test_a_run_under_pressure_has_equal_bits_and_stays_within_its_budget():
    runs = run("pressure.py"), run("pressure.py", options=OPTIONS)
    check_equal("model_state_larger_than_the_budget", *runs)
    check_clean(*runs)
    plain, managed = (int(re.search(r"reserved: (\d+)", each.errors)[1]) for each in runs)
    assert plain > 2 * (BUDGET << 20)
    assert managed <= BUDGET << 20


def test_a_run_that_fits_its_budget_offloads_nothing():
    runs = run("pressure.py"), run("pressure.py", options=("--check", "--budget=1GiB", "--schedule=late"))
    check_clean(*runs)
    plain, managed = runs
    assert managed.results == plain.results
    assert set(managed.fetched.values()) == {0}
    assert re.findall(r"offloaded: (\d+)", managed.errors) == ["0"]
