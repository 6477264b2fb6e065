# SPDX-License-Identifier: Apache-2.0
"""Every optimizer of torch.optim computes the same bits with managed storages as without."""

import itertools
import re
import sys

import pytest
from conftest import LONG, PROGRAMS, SEEDS, both, check_clean, check_equal

sys.path.append(str(PROGRAMS))

from optimizer_cases import OPTIONS, pairwise, product

NAME, CASES = ("product", product()) if LONG else ("pairwise", list(dict.fromkeys(pairwise())))


def runs(seed):
    return both("optimizers.py", seed, NAME)


@pytest.mark.parametrize("seed", SEEDS, ids=str)
@pytest.mark.parametrize("case", CASES)
def test_an_optimizer_has_equal_bits(case, seed):
    check_equal(case, *runs(seed))


@pytest.mark.parametrize("seed", SEEDS, ids=str)
def test_steps_of_optimizers_of_torch_overlap_with_later_work(seed):
    _, managed = runs(seed)
    assert int(re.search(r"^overlapped: (\d+)$", managed.errors, re.MULTILINE)[1]) > len(CASES)


@pytest.mark.parametrize("seed", SEEDS, ids=str)
def test_there_are_no_races(seed):
    check_clean(*runs(seed))


@pytest.mark.parametrize("pair", list(itertools.combinations(OPTIONS, 2)), ids="+".join)
def test_two_options_are_used_together(pair):
    refused = {"closure", "scaler"}  # by torch
    together = any(set(pair) <= set(case.split(".")[2].split("+")) for case in pairwise())
    assert together == (set(pair) != refused)
