# SPDX-License-Identifier: Apache-2.0
"""After the second step nothing is asked of the driver."""

import ctypes
import functools

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


def steady(ratio):
    net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 64)).cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    counts = []
    with Moved() as moved:
        for _ in range(7):
            x = torch.randn(128, 64, device="cuda")  # held by this loop until the next step
            target = torch.randn(128, 64, device="cuda")
            with spillway.CPUOffload(ratio, tag=f"steady {ratio}"):
                loss = (net(x) * target).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            counts.append((spillway.stats()["driver"], emulator_counts()))
    assert moved.out > 0  # what is still on the device when it is asked for need not come back
    assert all(count == counts[1] for count in counts[1:]), counts


for ratio in (0.3, 0.5, 1):
    claim = functools.partial(steady, ratio)
    claim.__name__ = f"after_the_second_step_with_ratio_{ratio}_nothing_is_allocated_registered_or_waited_for"
    case(claim)
