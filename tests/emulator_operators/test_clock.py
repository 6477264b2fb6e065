# SPDX-License-Identifier: Apache-2.0
"""With the virtual clock PyTorch's own events return modeled times, the same in every run."""

import torch

LINK = dict(clock="virtual", link_h2d="10GiB", link_d2h="5GiB", latency="10us")
BYTES = 64 << 20


def time_of_a_copy(to_device):
    host = torch.ones(BYTES, dtype=torch.uint8).pin_memory()
    device = torch.zeros(BYTES, dtype=torch.uint8, device="cuda")
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    if to_device:
        device.copy_(host, non_blocking=True)
    else:
        host.copy_(device, non_blocking=True)
    end.record()
    end.synchronize()
    return start.elapsed_time(end)


def test_a_copy_takes_its_latency_and_its_bytes(elsewhere):
    for to_device, expected in ((True, 6.26), (False, 12.51)):
        took = elsewhere(time_of_a_copy, to_device, **LINK)
        assert expected <= took <= expected * 1.02
        assert elsewhere(time_of_a_copy, to_device, schedule="late", **LINK) == took
