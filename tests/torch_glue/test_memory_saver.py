# SPDX-License-Identifier: Apache-2.0
"""torch_memory_saver's interface: what its users count on holds over Spillway's memory."""

import pytest
from conftest import EMULATED

USE = """
import torch
from spillway.memory_saver import torch_memory_saver as saver
def free(): return torch.cuda.mem_get_info()[0]
MiB = 1 << 20
"""
LATE = {"SPILLWAY_EMULATE_SCHEDULE": "late", "SPILLWAY_EMULATE_CHECK": "1"} if EMULATED else {}


def test_memory_is_released_and_the_address_stays(program):
    gone, back, same, usable = program(
        USE
        + """
with saver.region():
    x = torch.full((8 * MiB,), 100, dtype=torch.uint8, device="cuda")
at, before = x.data_ptr(), free()
saver.pause()
gone = free() - before
saver.resume()
x.fill_(7)
report([gone, free() - before, x.data_ptr() == at, x.sum().item() == 7 * 8 * MiB])
""",
        **LATE,
    )
    assert gone == 8 << 20 and back == 0 and same and usable


def test_with_a_backup_the_contents_are_fetched(program):
    backup, contents, after = program(
        USE
        + """
with saver.region(enable_cpu_backup=True):
    x = torch.arange(2 * MiB, device="cuda")
saver.pause()
backup = torch.equal(saver.get_cpu_backup(x[5:]), torch.arange(2 * MiB)[5:])
saver.resume()
report([backup, torch.equal(x.cpu(), torch.arange(2 * MiB)), saver.get_cpu_backup(x) is None])
""",
        **LATE,
    )
    assert backup and contents and after


def test_without_a_backup_nothing_is_copied(program):
    pauses, backup = program(
        USE
        + """
import spillway
with saver.region():
    x = torch.ones(8 * MiB, device="cuda")
saver.pause()
report([spillway.stats()["devices"][0]["pauses"], saver.get_cpu_backup(x) is None])
"""
    )
    assert pauses["on_host_bytes"] == 0 and pauses["paused_bytes"] == 32 << 20 and backup


def test_tags_go_and_come_one_by_one(program):
    freed = program(
        USE
        + """
with saver.region(tag="type1"):
    a = torch.empty(8 * MiB, dtype=torch.uint8, device="cuda")
with saver.region(tag="type2", enable_cpu_backup=True):
    b = torch.full((16 * MiB,), 3, dtype=torch.uint8, device="cuda")
before = free()
freed = []
for move, tag in ((saver.pause, "type1"), (saver.pause, "type2"), (saver.resume, "type2"),
                  (saver.resume, "type1"), (saver.pause, "type1"), (saver.resume, "type1"),
                  (saver.pause, None), (saver.resume, None)):
    move(tag)
    freed.append((free() - before) // MiB)
report([freed, b.sum().item() == 3 * 16 * MiB])
"""
    )
    assert freed == [[8, 24, 8, 0, 8, 0, 24, 0], True]


def test_regions_nest_and_disable_leaves_them(program):
    freed, contents = program(
        USE
        + """
with saver.region(tag="outer"):
    a = torch.empty(8 * MiB, dtype=torch.uint8, device="cuda")
    with saver.region(tag="inner"):
        b = torch.empty(16 * MiB, dtype=torch.uint8, device="cuda")
    with saver.disable():
        c = torch.full((4 * MiB,), 5, dtype=torch.uint8, device="cuda")
    d = torch.empty(2 * MiB, dtype=torch.uint8, device="cuda")
e = torch.full((4 * MiB,), 6, dtype=torch.uint8, device="cuda")
before = free()
freed = []
for tag in ("inner", "outer"):
    saver.pause(tag)
    freed.append((free() - before) // MiB)
report([freed, [c.sum().item(), e.sum().item()]])
"""
    )
    assert freed == [16, 26] and contents == [5 * (4 << 20), 6 * (4 << 20)]


def test_what_is_wrong_raises_and_ends_nothing(program):
    names, alive = program(
        USE
        + """
def error_of(call, *arguments):
    try:
        call(*arguments)
    except Exception as error:
        return type(error).__name__
saver.pause(); saver.resume(); saver.pause("never used")
with saver.region():
    x = torch.ones(4, device="cuda")
names = [error_of(saver.resume)]
saver.pause()
names += [error_of(saver.pause), error_of(saver.pause, 3), error_of(saver.pause, "a*")]
saver.resume()
names.append(error_of(lambda: saver.disable().__enter__()))
names.append(error_of(setattr, saver, "hook_mode", "magic"))
names.append(error_of(setattr, saver, "memory_margin_bytes", -1))
saver.hook_mode = "preload"
with saver.configure_subprocess():
    x.fill_(2)
report([names, [saver.enabled, saver.hook_mode, x.sum().item()]])
"""
    )
    assert names == [
        "RuntimeError", "RuntimeError", "TypeError", "ValueError", "RuntimeError", "ValueError", "ValueError"
    ]  # fmt: skip
    assert alive == [True, "preload", 8]


@pytest.mark.skipif(not EMULATED, reason="needs to know what else is on the device")
def test_the_margin_is_left_to_others(program):
    said = program(
        USE
        + """
saver.memory_margin_bytes = 32 * MiB
with saver.region():
    x = torch.empty(24 * MiB, dtype=torch.uint8, device="cuda")
    try:
        y = torch.empty(16 * MiB, dtype=torch.uint8, device="cuda")
        report("room")
    except torch.OutOfMemoryError:
        report(saver.memory_margin_bytes)
""",
        SPILLWAY_EMULATE_MEMORY="64MiB",
    )
    assert said == 32 << 20


def test_the_backward_pass_allocates_outside(program):
    inside = program(
        USE
        + """
x = torch.randn(4 * MiB, device="cuda", requires_grad=True)
with saver.region(tag="forward"):
    y = (x * 2).sum()
    y.backward()
torch.cuda.synchronize()
saver.pause("forward")
report(x.grad.sum().item() == 2 * 4 * MiB)
"""
    )
    assert inside


@pytest.mark.skipif(not EMULATED, reason="needs two devices, which the emulated GPU always has")
def test_all_devices_are_paused_together(program):
    freed, contents = program(
        USE
        + """
with saver.region(enable_cpu_backup=True):
    a = torch.full((8 * MiB,), 1, dtype=torch.uint8, device="cuda:0")
    b = torch.full((8 * MiB,), 2, dtype=torch.uint8, device="cuda:1")
before = [torch.cuda.mem_get_info(d)[0] for d in (0, 1)]
saver.pause()
freed = [torch.cuda.mem_get_info(d)[0] - before[d] for d in (0, 1)]
saver.resume()
report([freed, [a.sum().item(), b.sum().item()]])
""",
        SPILLWAY_EMULATE_DEVICES="2",
        **LATE,
    )
    assert freed == [8 << 20, 8 << 20] and contents == [8 << 20, 16 << 20]


def test_a_cuda_graph_replays_after_a_resume(program):
    equal, gone = program(
        USE
        + """
x = torch.arange(4 * MiB, device="cuda", dtype=torch.float)
graph = torch.cuda.CUDAGraph()
with saver.region(tag="weights", enable_cpu_backup=True):
    w = torch.full((4 * MiB,), 2.0, device="cuda")
torch.cuda.synchronize()
with saver.cuda_graph(graph, tag="graph"):
    y = (x * w).sin() + w
graph.replay()
expected = y.cpu()
before = free()
saver.pause("graph")
saver.pause("weights")
gone = free() - before
saver.resume("weights")
saver.resume("graph")
graph.replay()
report([torch.equal(y.cpu(), expected), gone])
"""
    )
    assert equal and gone >= 2 * (16 << 20)
