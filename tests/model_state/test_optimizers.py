# SPDX-License-Identifier: Apache-2.0
"""Every optimizer of torch.optim computes the same bits with managed storages as without."""

import itertools
import sys

import pytest
from conftest import PROGRAMS, check_clean, check_equal, run

sys.path.append(str(PROGRAMS))

from optimizer_cases import OPTIONS, pairwise  # noqa: E402

PAIRWISE = list(dict.fromkeys(pairwise()))


@pytest.fixture(scope="module")
def runs():
    return run("optimizers.py", ("pairwise",)), run("optimizers.py", ("pairwise",), chaos=5)


@pytest.mark.parametrize("case", PAIRWISE)
def test_an_optimizer_has_equal_bits(runs, case):
    check_equal(case, *runs)


def test_there_are_no_races(runs):
    check_clean(*runs)


@pytest.mark.parametrize("both", itertools.combinations(OPTIONS, 2), ids="+".join)
def test_two_options_are_used_together(both):
    never = {"closure", "scaler"}  # refused by torch
    together = any(set(both) <= set(case.split(".")[2].split("+")) for case in PAIRWISE)
    assert together == (set(both) != never)
