# SPDX-License-Identifier: Apache-2.0
"""What a manager's stash bounds, where copies take their time."""

import pytest
from conftest import EMULATED

#: 24 activations are saved, of 8 KiB each; their copies take a second each.
SLOW = {
    "SPILLWAY_EMULATE_SCHEDULE": "late",
    "SPILLWAY_EMULATE_CHECK": "1",
    "SPILLWAY_EMULATE_CLOCK": "virtual",
    "SPILLWAY_EMULATE_LINK_D2H": "8KiB",
}

pytestmark = pytest.mark.skipif(
    not EMULATED, reason="needs the emulated GPU's virtual clock, for slow copies"
)


def peaks(program, allocator, *stashes):
    choice = "spillway.use_allocator()" if allocator == "spillway" else ""
    source = f"""
import spillway
{choice}
from cases.managers import ACTIVATION, peak
from cases.measure import unordered
found = [peak(stash) / ACTIVATION for stash in {stashes}]
assert not unordered(), unordered()
report(found)
"""
    return program(source, **SLOW)


def test_a_small_stash_holds_less_memory_than_a_large_one_over_pytorchs_allocator(program):
    one, five, twenty = peaks(program, "torch", 1, 5, 20)
    assert one < five < twenty
    # Besides the stash only the tensors that are being worked on.
    assert one <= 1 + 2 and five <= 5 + 2 and twenty <= 20 + 2


def test_the_stash_is_moot_over_spillways_allocator(program):
    one, twenty = peaks(program, "spillway", 1, 20)
    assert one == twenty
