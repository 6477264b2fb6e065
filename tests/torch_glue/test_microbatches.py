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

def milliseconds(**options):
    net, micro = network(), spillway.microbatches(**options)
    step(net, micro)
    begun, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begun.record()
    step(net, micro)
    ended.record()
    torch.cuda.synchronize()
    return begun.elapsed_time(ended)

plain = milliseconds(offload_activations=False)
found = [milliseconds(activation_loading_horizon=horizon) - plain for horizon in (1, 2, 4, 8)]
assert not unordered(), unordered()
report(found)
"""


def test_the_longer_the_horizon_the_less_a_step_stalls_for_slow_copies_back(program):
    stalls = program(SOURCE, **SLOW)
    assert stalls == sorted(set(stalls), reverse=True) and stalls[-1] > 0, stalls
