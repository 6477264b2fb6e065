# SPDX-License-Identifier: Apache-2.0
"""Models that a script gives to `spillway.offload` compute the same bits as in a plain run."""

import pytest
from conftest import cases_of, check_clean, check_equal, run

PROGRAM = "given_models.py"
OPTIONS = ("--check", "--schedule=late", "--chaos=7")


def runs():
    return run(PROGRAM), run(PROGRAM, options=OPTIONS, environment=(("OFFLOAD_MODELS", "1"),))


@pytest.mark.parametrize("case", cases_of(PROGRAM))
def test_a_given_model_has_equal_bits(case):
    check_equal(case, *runs())


def test_there_are_no_races():
    check_clean(*runs())
