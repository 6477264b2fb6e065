# SPDX-License-Identifier: Apache-2.0
"""The saved-tensor engine over PyTorch's allocator, in both schedules, with the order checker on."""

import pytest
from conftest import SCHEDULES, cases_over, outcomes


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("case", cases_over("torch"))
def test_case(case, schedule):
    allocator, part, name = case
    wrong = outcomes(allocator, part, schedule)[name]
    assert not wrong, wrong
