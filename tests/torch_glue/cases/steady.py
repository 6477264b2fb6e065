# SPDX-License-Identifier: Apache-2.0
"""After the first planned step nothing is asked of the driver."""

import ctypes

import spillway
import torch

from cases import case
from cases.measure import Moved


def emulator_counts():
    library = ctypes.CDLL(None)
    if not hasattr(library, "spillway_emulator_count"):
        return []
    library.spillway_emulator_count.restype = ctypes.c_uint64
    return [
        library.spillway_emulator_count(n)
        for n in (b"device_allocations", b"host_registrations", b"host_syncs")
    ]


@case
def from_the_third_step_on_nothing_is_allocated_registered_or_waited_for():
    net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 64)).cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    x = torch.randn(128, 64, device="cuda")
    counts = []
    with Moved() as moved:
        for _ in range(7):
            with spillway.CPUOffload(1, tag="steady"):
                loss = net(x).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            counts.append((spillway.stats()["driver"], emulator_counts()))
    assert moved.out > 0 and moved.back > 0
    assert all(count == counts[2] for count in counts[2:]), counts
