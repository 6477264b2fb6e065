# SPDX-License-Identifier: Apache-2.0
"""After the second step nothing is asked of the driver, unless the need of memory grows."""

import ctypes
import functools
import random

import spillway
import torch

from cases import case
from cases.measure import Copied


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
    with Copied() as copied:
        for _ in range(7):
            x = torch.randn(128, 64, device="cuda")  # held by this loop until the next step
            target = torch.randn(128, 64, device="cuda")
            with spillway.CPUOffload(ratio, tag=f"steady {ratio}"):
                loss = (net(x) * target).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            counts.append((spillway.stats()["driver"], emulator_counts()))
    assert copied.out > 0  # what is still on the device when it is asked for need not be fetched
    assert all(count == counts[1] for count in counts[1:]), counts


for ratio in (0.3, 0.5, 1):
    claim = functools.partial(steady, ratio)
    claim.__name__ = f"after_the_second_step_with_ratio_{ratio}_nothing_is_allocated_registered_or_waited_for"
    case(claim)


def of_random_lengths(count):
    """Steps of this many lengths, from a quarter to the whole of the longest, at ratio 1."""
    draw = random.Random(count)
    lengths = [draw.randint(100, 400) for _ in range(count)]
    net = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.GELU(), torch.nn.Linear(512, 64)).cuda()
    tag = f"{count} lengths"
    peak = 0
    for each in range(60):
        before = spillway.stats()["driver"]["registrations"]
        x = torch.randn(16 * draw.choice(lengths), 64, device="cuda")
        with spillway.CPUOffload(1, tag=tag):
            loss = net(x).square().mean()
        loss.backward()
        del loss
        stats = spillway.stats()
        offloaded = stats["tags"][tag]["last"]["offloaded_bytes"]
        assert offloaded > 0
        if each > 0 and offloaded <= peak:
            assert stats["driver"]["registrations"] == before, (each, offloaded, peak)
        peak = max(peak, offloaded)
        host = stats["devices"][0]["host"]
        # Pieces are whole huge pages; one more may hold a slot that stays out from earlier cases.
        assert host["pinned_bytes"] <= 1.1 * host["in_slots_peak_bytes"] + (2 << 20), (each, host)


for count in (30, 300):
    claim = functools.partial(of_random_lengths, count)
    claim.__name__ = f"steps_of_{count}_random_lengths_register_memory_only_when_their_peak_grows"
    case(claim)
