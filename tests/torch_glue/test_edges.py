# SPDX-License-Identifier: Apache-2.0
"""A training loop in which a wait of invariants 1 to 3 (docs/invariants.md) is missing: the order checker
reports it in each step.

Invariant 4 (a host slot's next writer waits for its last copy) is implied by the others in a loop on one
stream; the residency tests break it where it stands alone.
"""

import os

import pytest
from conftest import EMULATED, run

pytestmark = pytest.mark.skipif(not EMULATED, reason="the order checker is the emulated GPU's")

STEPS = 20

# Each step has data of its own, so that a reused block cannot be right by accident, and the parameters
# are never updated, so that each step can be compared by itself.
PROGRAM = f"""
import ctypes, hashlib, os, torch, spillway
from torch import nn
spillway.use_allocator()
emulator = ctypes.CDLL(None)
emulator.spillway_emulator_count.restype = ctypes.c_uint64
emulator.spillway_emulator_race.restype = ctypes.c_char_p
emulator.spillway_emulator_race.argtypes = [ctypes.c_size_t]

def unordered():
    return emulator.spillway_emulator_count(b"unordered")

torch.manual_seed(3)
def block():
    return nn.Linear(128, 128), nn.GELU(), nn.LayerNorm(128)

net = nn.Sequential(*block(), *block(), *block(), *block()).cuda()
reports, bits = [], []
for step in range({STEPS}):
    batch = torch.randn(256, 128, generator=torch.Generator().manual_seed(step)).cuda()
    before = unordered()
    with spillway.CPUOffload(RATIO):
        loss = net(batch).square().mean()
    del batch
    loss.backward()
    torch.cuda.synchronize()
    digest = hashlib.sha256()
    for p in net.parameters():
        digest.update(p.grad.cpu().numpy().tobytes())
    bits.append(loss.item().hex() + digest.hexdigest())
    reports.append(unordered() - before)
    net.zero_grad()
    del loss
dropped = ctypes.CDLL(os.environ["DROP_LIBRARY"]).dropped_waits
dropped.restype = ctypes.c_uint64
texts = [emulator.spillway_emulator_race(i) for i in range(1024)]
report(dict(reports=reports, bits=bits, dropped=dropped(), texts=[t.decode() for t in texts if t]))
"""


def train(ratio, edge=""):
    library = os.environ["TEST_LIBRARIES"] + "/libspillway_test_drop_edge.so"
    return run(
        PROGRAM.replace("RATIO", str(ratio)),
        LD_PRELOAD=library + ":" + os.environ["LD_PRELOAD"],
        DROP_LIBRARY=library,
        DROP_EDGE=edge,
        SPILLWAY_EMULATE_SCHEDULE="late",
        SPILLWAY_EMULATE_CHECK="1",
    )


@pytest.fixture(scope="module")
def plain():
    return train(0.0)


def test_with_every_wait_the_checker_is_silent_and_the_bits_are_right(plain):
    offloaded = train(1.0)
    assert offloaded["dropped"] == 0
    assert offloaded["reports"] == plain["reports"] == [0] * STEPS
    assert offloaded["bits"] == plain["bits"]
    assert len(set(plain["bits"])) == STEPS


@pytest.mark.parametrize(
    ("edge", "first", "second"),
    (
        ("producer", "memcpy device to host", "aten::"),
        ("source", "memcpy device to host", "aten::"),
        ("destination", "memcpy host to device", "aten::"),
        ("consumer", "memcpy host to device", "aten::"),
    ),
)
def test_without_one_wait_the_checker_names_the_two_operations_in_every_step(plain, edge, first, second):
    broken = train(1.0, edge)
    assert broken["dropped"] >= STEPS
    assert all(broken["reports"]), broken["reports"]
    assert any(first in text and second in text for text in broken["texts"]), broken["texts"][:3]
    if edge == "consumer":
        wrong = [a != b for a, b in zip(broken["bits"], plain["bits"], strict=True)]
        assert all(wrong), "a step that read before its copy in was right"
