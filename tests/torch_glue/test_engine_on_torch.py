# SPDX-License-Identifier: Apache-2.0
"""The saved-tensor engine over PyTorch's allocator, with the order checker on."""

import pytest
from conftest import cases_over, outcomes


@pytest.mark.parametrize("case", cases_over("torch"))
def test_case(case):
    allocator, part, schedule, name = case
    wrong = outcomes(allocator, part, schedule)[name]
    assert not wrong, wrong
