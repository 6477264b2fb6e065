# SPDX-License-Identifier: Apache-2.0
"""What a horizon gains, where copies back take their time."""

import pytest
from conftest import EMULATED

pytestmark = pytest.mark.skipif(
    not EMULATED, reason="needs the emulated GPU's virtual clock, for slow copies"
)

#: Copies back are what the backward passes wait for.
SLOW = {
    "SPILLWAY_EMULATE_SCHEDULE": "late",
    "SPILLWAY_EMULATE_CHECK": "1",
    "SPILLWAY_EMULATE_CLOCK": "virtual",
    "SPILLWAY_EMULATE_LINK_H2D": "64MiB",
}

SOURCE = """
import spillway, torch
spillway.use_allocator()
from cases.measure import unordered
from cases.microbatches import network, step

def milliseconds(horizon):
    net, micro = network(), spillway.microbatches(activation_loading_horizon=horizon)
    step(net, micro)
    begun, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begun.record()
    step(net, micro)
    ended.record()
    torch.cuda.synchronize()
    return begun.elapsed_time(ended)

found = [milliseconds(horizon) for horizon in (1, 2, 4, 8)]
assert not unordered(), unordered()
report(found)
"""


def test_a_longer_horizon_waits_less_for_slow_copies_back(program):
    found = program(SOURCE, **SLOW)
    assert found == sorted(set(found), reverse=True), found
