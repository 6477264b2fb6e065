# SPDX-License-Identifier: Apache-2.0
"""The saved-tensor engine over both allocators, in both schedules, with the order checker on."""

import cases
import pytest
from conftest import EMULATED, outcomes

SCHEDULES = ("eager", "late") if EMULATED else ("real",)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("allocator", ("spillway", "torch"))
@pytest.mark.parametrize("name", sorted(cases.load()))
def test_case(name, allocator, schedule):
    wrong = outcomes(allocator, schedule)[name]
    assert not wrong, wrong
