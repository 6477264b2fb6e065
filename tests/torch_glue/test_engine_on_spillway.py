# SPDX-License-Identifier: Apache-2.0
"""The saved-tensor engine over Spillway's allocator, in both schedules, with the order checker on."""

import cases
import pytest
from conftest import SCHEDULES, outcomes


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", sorted(cases.load()))
def test_case(name, schedule):
    wrong = outcomes("spillway", schedule)[name]
    assert not wrong, wrong
