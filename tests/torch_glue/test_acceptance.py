# SPDX-License-Identifier: Apache-2.0
"""Items of the acceptance list (README.md) that need a process of their own."""

import re

import cases
import pytest
from conftest import EMULATED, HERE

PRELUDE = """
import spillway, torch
from torch import nn
from cases.measure import Copied, same, unordered
spillway.use_allocator()
def network():
    torch.manual_seed(1)
    return nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.Tanh()) for _ in range(4)))
def batch():
    return torch.randn(1024, 64, generator=torch.Generator().manual_seed(3))
"""

TWO_DEVICES = """
def run(manager):
    net = network()
    net[:2].to("cuda:0"), net[2:].to("cuda:1")
    with manager:
        loss = net[2:](net[:2](batch().to("cuda:0")).to("cuda:1")).square().sum()
    loss.backward()
    return [p.grad for p in net.parameters()]

found = run(spillway.CPUOffload(1))
equal = same(found, run(spillway.compat.NoOpManager()))
devices = spillway.stats()["devices"]
report([equal, [devices[n]["residency"]["stashed_bytes"] > 0 for n in (0, 1)], unordered()])
"""

LITTLE_HOST_MEMORY = """
def run(manager):
    net = network().cuda()
    with manager:
        loss = net(batch().cuda() * 1).square().sum()
    on_host = spillway.stats()["devices"][0]["residency"]["on_host_bytes"]
    loss.backward()
    return [p.grad for p in net.parameters()], on_host

with Copied() as copied:
    found, on_host = run(spillway.CPUOffload(1))
report([same(found, run(spillway.compat.NoOpManager())[0]), copied.out, on_host, unordered()])
"""


LATE = {"SPILLWAY_EMULATE_SCHEDULE": "late", "SPILLWAY_EMULATE_CHECK": "1"} if EMULATED else {}


@pytest.mark.skipif(not EMULATED, reason="needs two devices, which the emulated GPU always has")
def test_one_region_moves_activations_of_two_devices(program):
    found = program(PRELUDE + TWO_DEVICES, SPILLWAY_EMULATE_DEVICES="2", **LATE)
    assert found == [True, [True, True], []]


def test_where_host_memory_ends_activations_stay(program):
    limit = 1 << 20  # four activations of 256 KiB, of the six offloadable ones
    found = program(PRELUDE + LITTLE_HOST_MEMORY, SPILLWAY_PINNED_LIMIT=str(limit), **LATE)
    equal, offloaded, on_host, reports = found
    assert equal and 0 < offloaded == on_host <= limit and not reports


def test_every_item_of_the_list_names_tests_that_exist():
    rows = re.findall(r"^\| (\d+) \|.*\| (.*) \|$", (HERE / "README.md").read_text(), re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(range(1, 39))
    tests = "".join(path.read_text() for path in HERE.glob("test_*.py"))
    for number, named in rows:
        names = [
            name
            for name in re.findall(r"`([^`]+)`", named)
            if not name.endswith(".py") and name not in ("late", "bench", "scripts/peers")
        ]
        missing = [name for name in names if name not in cases.load() and f"def {name}(" not in tests]
        assert not missing, f"item {number}: {missing}"
        assert names or "test_edges.py" in named
