# SPDX-License-Identifier: Apache-2.0
"""Model state that is larger than the budget leaves the GPU, without chaos, from loading to saving. What fits
stays."""

import re
import sys

import pytest
from conftest import PROGRAMS, cases_of, check_clean, check_equal, run
from launched import spillway

BUDGET = 112  # MiB, of which 64 are workspaces


@pytest.mark.parametrize("program", ["pressure.py", "pretrained.py"])
def test_a_run_under_pressure_has_equal_bits_and_stays_within_its_budget(program):
    options = ("--check", f"--budget={BUDGET}MiB", "--schedule=late")
    runs = run(program), run(program, options=options)
    for name in cases_of(program):
        check_equal(name, *runs)
    check_clean(*runs)
    plain, managed = (int(re.search(r"reserved: (\d+)", each.errors)[1]) for each in runs)
    assert plain > 2 * (BUDGET << 20)
    assert managed <= BUDGET << 20


def test_what_is_used_next_is_prefetched_and_neither_frozen_weights_nor_checkpoints_cost_copies():
    errors = run("pressure.py", options=("--check", f"--budget={BUDGET}MiB", "--schedule=late")).errors
    assert int(re.search(r"prefetched: (\d+)", errors)[1]) > 0
    assert int(re.search(r"copied after loading: (\d+)", errors)[1]) == 0
    assert int(re.search(r"fetched to save: (\d+)", errors)[1]) == 0


def test_a_run_that_fits_its_budget_offloads_nothing():
    runs = run("pressure.py"), run("pressure.py", options=("--check", "--budget=1GiB", "--schedule=late"))
    check_clean(*runs)
    plain, managed = runs
    assert managed.results == plain.results
    assert set(managed.fetched.values()) == {0}
    assert re.findall(r"offloaded: (\d+)", managed.errors) == ["0"]


def test_micro_batches_take_turns_with_optimizer_states():
    runs = run("accumulated.py"), run("accumulated.py", options=("--budget=256MiB", "--schedule=late"))
    check_equal("micro_batches", *runs)


def test_activations_and_model_state_share_the_link_in_a_step_of_micro_batches():
    command = ("dry-run", "h200", "--budget=256MiB", "--", sys.executable, PROGRAMS / "accumulated.py")
    errors = spillway(*command).stderr
    parameters = int(re.search(r"of the parameters: (\d+)", errors)[1])
    # AdamW has two states of this size for them. Where parameters and gradients left in each of the 8
    # micro-batches, up to 16 times as many bytes would come in; where they all stayed, 11 times as many
    # bytes of activations.
    assert 0 < int(re.search(r"fetched in the last step: (\d+)", errors)[1]) <= 6 * parameters
    fetched = float(re.search(r"([\d.]+) MiB to the\s+device", errors)[1]) * 2**20
    assert fetched <= 10 * parameters
