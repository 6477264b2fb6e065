# SPDX-License-Identifier: Apache-2.0
"""The saved-tensor engine over Spillway's allocator, in both schedules, with the order checker on."""

import pytest
from conftest import SCHEDULES, names_of_cases, outcomes


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("name", "part"), names_of_cases("spillway"))
def test_case(name, part, schedule):
    wrong = outcomes("spillway", schedule, part)[name]
    assert not wrong, wrong
