# SPDX-License-Identifier: Apache-2.0
"""Models and training loops compute the same bits with managed storages as without."""

import pytest
from conftest import PROGRAMS as FOLDER
from conftest import SEEDS, both, cases_of, check_clean, check_equal

UNDER_PRESSURE = {"pressure.py", "pretrained.py"}  # test_pressure.py
GIVEN = "given_models.py"  # test_given_models.py
PROGRAMS = sorted(
    {each.name for each in FOLDER.glob("*.py") if cases_of(each.name)} - UNDER_PRESSURE - {GIVEN}
)
CASES = [(program, case) for program in PROGRAMS for case in cases_of(program)]


@pytest.mark.parametrize("seed", SEEDS, ids=str)
@pytest.mark.parametrize(("program", "case"), CASES)
def test_a_program_has_equal_bits(program, case, seed):
    check_equal(case, *both(program, seed))


@pytest.mark.parametrize("seed", SEEDS, ids=str)
@pytest.mark.parametrize("program", PROGRAMS)
def test_there_are_no_races(program, seed):
    check_clean(*both(program, seed))
