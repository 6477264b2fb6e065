# SPDX-License-Identifier: Apache-2.0
"""What plans take of the host's memory: without the order checker, which has accounting of its own."""

import pytest
from conftest import EMULATED

SOURCE = """
import ctypes, gc, spillway, torch
from cases.replanning import network, step


class HeapInUse(ctypes.Structure):  # glibc's struct mallinfo2
    _names = ("arena", "free_chunks", "fast_chunks", "maps", "mapped", "_", "fast", "used", "free", "top")
    _fields_ = tuple((name, ctypes.c_size_t) for name in _names)


def host_bytes():
    mallinfo2 = ctypes.CDLL(None).mallinfo2
    mallinfo2.restype = HeapInUse
    now = mallinfo2()
    return now.used + now.mapped


spillway.use_allocator()
net, region, rows = network(), {region}, 32
found = []
for _ in range(7):
    for _ in range(256):  # as many as are remembered
        rows += 1
        step(net, rows, region)
        net.zero_grad()
    torch.cuda.synchronize()
    gc.collect()
    found.append(host_bytes())
tag = spillway.stats()["tags"]["new"]
report([found, tag["last"]["offloadable_bytes"] / rows, tag["plan_mismatches"]])
"""


@pytest.mark.skipif(not EMULATED, reason="a real GPU's libraries keep something of each shape, too")
@pytest.mark.parametrize("region", ["CPUOffload(0.5, tag='new')", "offload(budget='1GiB', tag='new')"])
def test_plans_of_new_shapes_do_not_pile_up(program, region):
    found, bytes_per_row, mismatches = program(
        SOURCE.format(region=f"spillway.{region}"), SPILLWAY_EMULATE_CHECK="0"
    )
    assert bytes_per_row > 0 and mismatches == 0
    # The plans of 256 shapes take more than this.
    # What is made once, and what grows by doubling, is there by the third time. Steps that the device has not
    # finished take memory too, at some times more than at others.
    assert min(found[4:]) - min(found[2:4]) < 80 << 10, found
