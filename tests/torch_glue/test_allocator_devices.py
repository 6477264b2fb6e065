# SPDX-License-Identifier: Apache-2.0
"""Spillway's heaps of two GPUs: copies between them."""

import pytest
from conftest import EMULATED, run

USE = "import torch, spillway\nspillway.use_allocator()\n"
SESSION = """
facts = {}
a = torch.arange(1 << 18, dtype=torch.float32, device="cuda:0")
b = a.to("cuda:1")
c = torch.empty_like(a, device="cuda:1")
c.copy_(a * 2)
facts["copied"] = [torch.equal(a.cpu(), b.cpu()), torch.equal(a.cpu() * 2, c.cpu())]
later = torch.full((1 << 20,), 5.0, device="cuda:0")
facts["back"] = torch.equal(later.to("cuda:1").to("cuda:0").cpu(), later.cpu())

facts["heaps"] = sorted(spillway.stats()["devices"])
report(facts)
"""


@pytest.fixture(scope="module")
def seen():
    if not EMULATED:
        pytest.skip("needs two devices, which the emulated GPU always has")
    return run(
        USE + SESSION,
        SPILLWAY_EMULATE_DEVICES="2",
        SPILLWAY_EMULATE_SCHEDULE="late",
        SPILLWAY_EMULATE_CHECK="1",
    )


def test_tensors_are_copied_between_devices(seen):
    assert seen["copied"] == [True, True] and seen["back"]
    assert seen["heaps"] == [0, 1]
