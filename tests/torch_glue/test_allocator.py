# SPDX-License-Identifier: Apache-2.0
"""Spillway's heap as PyTorch's CUDA memory: what scripts know of torch.cuda goes on working."""

import pytest
from conftest import EMULATED

USE = "import torch, spillway\nspillway.use_allocator()\n"
# A device that is full after 64 MiB, real or emulated.
SMALL = """
torch.cuda.set_per_process_memory_fraction(64 * 2**20 / torch.cuda.mem_get_info()[1])
"""


def test_current_and_peak_memory_follow_the_tensors(program):
    now, peak, freed, reset = program(
        USE
        + """
a = torch.empty(3 << 20, dtype=torch.uint8, device="cuda")
b = torch.empty(1 << 20, dtype=torch.uint8, device="cuda")
now = torch.cuda.memory_allocated()
del b
freed, peak = torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()
torch.cuda.reset_peak_memory_stats()
report([now, peak, freed, torch.cuda.max_memory_allocated()])
"""
    )
    assert (now, peak, freed, reset) == (4 << 20, 4 << 20, 3 << 20, 3 << 20)


def test_reserved_memory_is_what_the_driver_has_given(program):
    held, after, total_change = program(
        USE
        + """
free = torch.cuda.mem_get_info()[0]
a = torch.empty(30 << 20, dtype=torch.uint8, device="cuda")
held = torch.cuda.memory_reserved()
change = free - torch.cuda.mem_get_info()[0]
assert torch.cuda.max_memory_reserved() == held
del a
assert torch.cuda.memory_reserved() == held
torch.cuda.empty_cache()
report([held, torch.cuda.memory_reserved(), change])
"""
    )
    assert held >= 30 << 20
    # A real driver takes its own tables beside.
    assert 0 <= total_change - held <= (0 if EMULATED else 32 << 20)
    assert after == 0


def test_statistics_count_allocations_and_bytes(program):
    stats = program(
        USE
        + """
kept = [torch.empty(1000, dtype=torch.uint8, device="cuda") for _ in range(5)]
del kept[3:]
report({k: v for k, v in torch.cuda.memory_stats().items() if ".all." in k})
"""
    )
    kinds = ("current", "peak", "allocated", "freed")
    assert [stats[f"allocation.all.{k}"] for k in kinds] == [3, 5, 5, 2]
    assert [stats[f"allocated_bytes.all.{k}"] for k in kinds] == [3 * 1024, 5 * 1024, 5 * 1024, 2 * 1024]
    assert [stats[f"requested_bytes.all.{k}"] for k in kinds] == [3000, 5000, 5000, 2000]
    assert stats["reserved_bytes.all.current"] == stats["reserved_bytes.all.allocated"] > 0


POOLS = """
sizes = [512, 1000, 4096, 100 << 10, 2 << 20, 4 << 20, 40 << 20]
kept = [torch.empty(size, dtype=torch.uint8, device="cuda") for size in sizes for _ in range(3)]
torch.cuda.memory_stats()
del kept[::3]
kinds = ("allocation", "allocated_bytes", "requested_bytes", "active", "active_bytes")
found = torch.cuda.memory_stats()
torch.cuda.reset_peak_memory_stats()
torch.cuda.reset_accumulated_memory_stats()
del kept[:4]
after = torch.cuda.memory_stats()
report([{k: v for k, v in stats.items() if k.split(".")[0] in kinds} for stats in (found, after)])
"""


def test_small_and_large_blocks_are_counted_as_by_the_native_allocator(program):
    ours, native = program(USE + POOLS), program("import torch\n" + POOLS)
    assert ours == native
    assert ours[0]["allocation.small_pool.current"] == 8 and ours[0]["allocation.large_pool.freed"] == 3


def test_free_memory_of_either_pool_is_where_it_is(program):
    stats = program(
        USE
        + """
small = [torch.empty(512, dtype=torch.uint8, device="cuda") for _ in range(3)]
large = [torch.empty(1 << 20, dtype=torch.uint8, device="cuda") for _ in range(2)]
del small[1], large[1]
report(torch.cuda.memory_stats())
"""
    )
    for kind in ("reserved_bytes", "segment", "inactive_split", "inactive_split_bytes"):
        small, large, both = (stats[f"{kind}.{pool}.current"] for pool in ("small_pool", "large_pool", "all"))
        assert small > 0 and large > 0 and small + large == both
    assert stats["inactive_split.small_pool.current"] == 2  # between two blocks, and behind them


def test_free_memory_beside_allocated_blocks_is_not_releasable(program):
    stranded, none = program(
        USE
        + """
key = "inactive_split_bytes.all.current"
first, second = [torch.empty(1 << 20, dtype=torch.uint8, device="cuda") for _ in range(2)]
del second
stranded = torch.cuda.memory_stats()[key]
del first
report([stranded, torch.cuda.memory_stats()[key]])
"""
    )
    assert stranded >= 1 << 20 and none == 0


def test_accumulated_statistics_can_be_reset(program):
    stats = program(
        USE
        + """
kept = torch.empty(1000, dtype=torch.uint8, device="cuda")
torch.cuda.reset_accumulated_memory_stats()
more = torch.empty(2000, dtype=torch.uint8, device="cuda")
report(torch.cuda.memory_stats())
"""
    )
    assert stats["allocation.all.allocated"] == 1
    assert stats["requested_bytes.all.allocated"] == 2000
    assert stats["allocation.all.current"] == 2


def test_the_summary_and_the_accelerator_interface_show_the_same_memory(program):
    summary, allocated, accelerator, backend = program(
        USE
        + """
kept = torch.empty(5 << 20, dtype=torch.uint8, device="cuda")
report([torch.cuda.memory_summary(), torch.cuda.memory_allocated(), torch.accelerator.memory_allocated(),
        torch.cuda.get_allocator_backend()])
"""
    )
    assert "5120 KiB" in summary
    assert allocated == accelerator == 5 << 20
    assert backend == "spillway"


def test_a_snapshot_shows_segments_and_blocks(program):
    segments, address = program(
        USE
        + """
kept = torch.empty(3 << 20, dtype=torch.uint8, device="cuda")
report([torch.cuda.memory_snapshot(), kept.data_ptr()])
"""
    )
    (segment,) = [s for s in segments if s["address"] <= address < s["address"] + s["total_size"]]
    assert segment["allocated_size"] == 3 << 20
    assert sum(block["size"] for block in segment["blocks"]) == segment["total_size"]
    assert [b["requested_size"] for b in segment["blocks"] if b["state"] == "active_allocated"] == [3 << 20]


def test_out_of_memory_states_who_holds_what_and_training_goes_on(program):
    message, observed, ooms, equal = program(
        USE
        + SMALL
        + """
observed = []
torch._C._cuda_attach_out_of_memory_observer(lambda device, size, total, free: observed.append(size))
x = torch.randn(1024, 1024, device="cuda", requires_grad=True)
with spillway.CPUOffload(0, tag="blocks"):
    y = (x * 2).sigmoid().sum()
    held = torch.empty(40 << 20, dtype=torch.uint8, device="cuda")
try:
    torch.empty(50 << 20, dtype=torch.uint8, device="cuda")
except torch.cuda.OutOfMemoryError as error:
    message = str(error)
del held
y.backward()
sigmoid = (x.detach() * 2).sigmoid()
report([message, observed, torch.cuda.memory_stats()["num_ooms"],
        torch.allclose(x.grad, 2 * sigmoid * (1 - sigmoid))])
"""
    )
    assert message.startswith("CUDA out of memory. Tried to allocate 50.00 MiB.")
    assert "blocks" in message
    assert observed == [50 << 20]
    assert ooms == 1 and equal


def test_what_fits_after_cached_memory_is_released_is_not_out_of_memory(program):
    program(
        USE
        + SMALL
        + """
side = torch.cuda.Stream()
with torch.cuda.stream(side):
    a = torch.empty(40 << 20, dtype=torch.uint8, device="cuda")
del a
b = torch.empty(40 << 20, dtype=torch.uint8, device="cuda")
"""
    )


def test_the_memory_fraction_is_read_back(program):
    fraction, whole = program(
        USE
        + """
torch.cuda.set_per_process_memory_fraction(0.25)
fraction = torch.cuda.get_per_process_memory_fraction()
torch.cuda.set_per_process_memory_fraction(1.0)
report([fraction, torch.cuda.get_per_process_memory_fraction()])
"""
    )
    assert abs(fraction - 0.25) < 1e-6 and whole == 1.0


def test_a_block_recorded_on_another_stream_is_reused_in_order(program):
    reports, values = program(
        USE
        + """
from cases.measure import unordered
side = torch.cuda.Stream()
values = []
for value in range(4):
    a = torch.full((1 << 20,), float(value), device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        b = a + 1
    a.record_stream(side)
    del a
    torch.full((1 << 20,), -1.0, device="cuda")
    torch.cuda.current_stream().wait_stream(side)
    values.append(b.unique().tolist())
report([unordered(), values])
""",
        SPILLWAY_EMULATE_SCHEDULE="late",
        SPILLWAY_EMULATE_CHECK="1",
    )
    assert values == [[1.0], [2.0], [3.0], [4.0]]
    assert reports == []


def test_the_profiler_sees_the_memory(program):
    seen = program(
        USE
        + """
from torch.profiler import ProfilerActivity, profile
torch.empty(1, device="cuda")
with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as p:
    a = torch.empty(1 << 20, dtype=torch.uint8, device="cuda")
    del a
report(sum(abs(e.device_memory_usage) for e in p.events()))
"""
    )
    assert seen >= 1 << 20


def test_what_is_not_there_yet_raises_and_names_the_way_out(program):
    errors = program(
        USE
        + """
a = torch.zeros(4, device="cuda")
errors = []
for attempt in (
    lambda: torch.cuda.caching_allocator_enable(False),
):
    try:
        attempt()
    except NotImplementedError as error:
        errors.append(str(error))
report(errors)
"""
    )
    assert len(errors) == 1
    assert all("does not support" in e and "PyTorch's own allocator" in e for e in errors)


def test_once_cuda_has_started_it_is_too_late(program):
    message, backend = program(
        """
import torch, spillway
torch.zeros(1, device="cuda")
try:
    spillway.use_allocator()
except RuntimeError as error:
    message = str(error)
report([message, torch.cuda.get_allocator_backend()])
"""
    )
    assert "before anything touches the GPU" in message and "spillway run" in message
    assert backend == "native"


def test_a_second_call_changes_nothing(program):
    program(USE + "torch.zeros(1, device='cuda')\nspillway.use_allocator()\n")


def test_a_process_that_exits_with_tensors_and_graphs_is_silent(program):
    program(
        USE
        + """
x = torch.randn(64, 64, device="cuda", requires_grad=True)
with spillway.CPUOffload(1):
    y = (x * 2).sigmoid().sum()
""",
        silent=True,
    )


def test_workers_forked_after_cuda_started_do_their_work(program):
    total = program(
        USE
        + """
from torch.utils.data import DataLoader
x = torch.randn(64, 64, device="cuda", requires_grad=True)
with spillway.CPUOffload(1):
    y = (x * 2).sigmoid().sum()
    total = sum(batch.sum().item() for batch in DataLoader(range(10), batch_size=2, num_workers=2))
y.backward()
report(total)
"""
    )
    assert total == 45


def test_each_device_moves_its_own(program):
    equal, moved = program(
        USE
        + """
import sys
if torch.cuda.device_count() < 2:
    report([None, None])
    raise SystemExit
def gradient(device, ratio):
    torch.manual_seed(1)
    x = torch.randn(64, 64, device=device, requires_grad=True)
    with spillway.CPUOffload(ratio, tag=f"two {ratio}"):
        y = (x * 2).sigmoid().sum()
    y.backward()
    return x.grad.cpu()
equal = [torch.equal(gradient(d, 1), gradient(d, 0)) for d in ("cuda:0", "cuda:1")]
devices = spillway.stats()["devices"]
report([equal, [devices[i]["residency"]["stashed_bytes"] for i in (0, 1)]])
""",
        SPILLWAY_EMULATE_DEVICES="2",
    )
    if equal is None:
        pytest.skip("this machine has one GPU")
    assert equal == [True, True] and moved == [64 * 64 * 4, 64 * 64 * 4]


def test_memory_may_be_kept_for_a_stream_of_another_device(program):
    again, live = program(
        USE
        + """
if torch.cuda.device_count() < 2:
    report([None, None])
    raise SystemExit
x = torch.ones(4 << 20, device="cuda:0")
at = x.data_ptr()
x.record_stream(torch.cuda.default_stream(1))
del x
again = torch.empty(4 << 20, device="cuda:0")
report([again.data_ptr() == at, torch.cuda.memory_allocated(0)])
""",
        SPILLWAY_EMULATE_DEVICES="2",
    )
    if again is None:
        pytest.skip("this machine has one GPU")
    assert again and live == 16 << 20
