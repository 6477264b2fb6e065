# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own allocators on the emulated GPU: a process for each: it is chosen before CUDA starts."""

import ctypes
import functools
import gc
import os
import pathlib

import pytest
import torch
from models import fit_gpt

MIB = 2**20
ALLOCATORS = {
    "native": {"PYTORCH_ALLOC_CONF": "backend:native"},
    "expandable segments": {"PYTORCH_ALLOC_CONF": "expandable_segments:True"},
    "cudaMallocAsync": {"PYTORCH_ALLOC_CONF": "backend:cudaMallocAsync"},
}
# The last one leaves caching to the driver: no history, no snapshot, no pools.
WITH_SEGMENTS = ["native", "expandable segments"]


def used():
    """Bytes of device memory that this process has from the driver."""
    function = ctypes.CDLL(None).spillway_emulator_used
    function.restype = ctypes.c_uint64
    return function(0)


def hold_and_free():
    torch.cuda.empty_cache()
    before = used()
    kept = torch.ones(60 * MIB // 4, device="cuda")
    free, total = torch.cuda.mem_get_info()
    counts = {
        "allocated": torch.cuda.memory_allocated(),
        "held": used() - before,
        "unaccounted": total - free - used(),
    }
    del kept
    torch.cuda.synchronize()
    counts |= {"allocated after": torch.cuda.memory_allocated(), "cached": torch.cuda.memory_reserved()}
    torch.cuda.empty_cache()
    return counts | {"reserved": torch.cuda.memory_reserved(), "kept": used() - before}


def grow():
    """Fills most of the device, frees it, and asks for a block larger than any that was freed."""
    blocks = [torch.empty(32 * MIB, dtype=torch.uint8, device="cuda") for _ in range(6)]
    blocks.clear()
    torch.cuda.synchronize()
    big = torch.full((100 * MIB,), 7, dtype=torch.uint8, device="cuda")
    return int(big[-1])


def run_out():
    kept = torch.ones(MIB, dtype=torch.uint8, device="cuda")
    with pytest.raises(torch.OutOfMemoryError) as raised:
        torch.empty(1000 * MIB, dtype=torch.uint8, device="cuda")
    return [str(raised.value), int(kept.sum(dtype=torch.int64))]


def history():
    torch.cuda.memory._record_memory_history()
    kept = torch.ones(3 * MIB, device="cuda")
    del kept
    kept = torch.ones(5 * MIB, device="cuda")
    snapshot = torch.cuda.memory._snapshot()
    torch.cuda.memory._record_memory_history(enabled=None)
    trace = snapshot["device_traces"][0]
    return {
        "actions": [[entry["action"], entry["size"]] for entry in trace],
        "blocks": [
            [block["state"], block["size"]] for segment in snapshot["segments"] for block in segment["blocks"]
        ],
        "frames": any("test_allocators" in str(entry["frames"]) for entry in trace),
        "summary": torch.cuda.memory_summary(),
        "allocated": torch.cuda.memory_allocated() - kept.numel() * kept.element_size(),
    }


def pool_of_its_own():
    torch.cuda.empty_cache()
    pool = torch.cuda.MemPool()
    outside = torch.ones(8 * MIB, device="cuda")
    with torch.cuda.use_mem_pool(pool):
        inside = torch.ones(8 * MIB, device="cuda")

    ranges = [range(s["address"], s["address"] + s["total_size"]) for s in pool.snapshot()]
    placed = [any(tensor.data_ptr() in each for each in ranges) for tensor in (inside, outside)]
    total = int((inside + outside).sum())
    held = used()
    del inside
    del pool
    gc.collect()
    torch.cuda.empty_cache()
    return [*placed, total, held - used() >= 32 * MIB]


def limit():
    """The last of all: the limit stays."""
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(0.25)
    with pytest.raises(torch.OutOfMemoryError) as raised:
        torch.empty(66 * MIB, dtype=torch.uint8, device="cuda")
    return str(raised.value)


def everything(has_segments):
    cases = [hold_and_free, grow, run_out, *([history, pool_of_its_own] if has_segments else []), limit]
    trained = {"train": fit_gpt("cuda")}
    torch._C._cuda_clearCublasWorkspaces()  # 64 of the 256 MiB that the cases count on
    return trained | {case.__name__: case() for case in cases}


@pytest.fixture(scope="module")
def outcomes(elsewhere):
    """The result of every case over an allocator, under the late schedule."""

    @functools.cache
    def of(name):
        return elsewhere(
            everything,
            name in WITH_SEGMENTS,
            **ALLOCATORS[name],
            SPILLWAY_EMULATE_MEMORY="256MiB",
            SPILLWAY_EMULATE_SCHEDULE="late",
        )

    return of


@pytest.fixture(params=ALLOCATORS.keys())
def outcome(request, outcomes):
    return outcomes(request.param)


@pytest.fixture(params=WITH_SEGMENTS)
def of_segments(request, outcomes):
    return outcomes(request.param)


@pytest.fixture(scope="module")
def on_the_cpu():
    return fit_gpt("cpu")


def test_training_gives_the_bits_of_a_cpu_run(outcome, on_the_cpu):
    assert outcome["train"] == on_the_cpu


def test_memory_is_counted_where_it_is_held(outcome):
    counts = outcome["hold_and_free"]
    assert counts["allocated"] >= 60 * MIB
    assert counts["held"] == 60 * MIB
    assert counts["unaccounted"] == 0


def test_freed_memory_is_returned_by_empty_cache(outcome):
    counts = outcome["hold_and_free"]
    assert counts["allocated after"] <= counts["allocated"] - 60 * MIB
    assert counts["kept"] == 0


def test_freed_memory_is_kept_until_then(of_segments):
    counts = of_segments["hold_and_free"]
    assert counts["cached"] - counts["reserved"] == 60 * MIB


def test_freed_memory_makes_room_for_a_larger_block(outcome):
    assert outcome["grow"] == 7


def test_out_of_memory_names_the_size_and_leaves_the_rest_usable(outcome):
    text, total = outcome["run_out"]
    assert "1000.00 MiB" in text
    assert total == MIB


def test_a_fraction_of_the_memory_is_all_that_a_process_gets(outcome):
    assert "66.00 MiB" in outcome["limit"]
    assert "256.00 MiB" in outcome["limit"]


def test_the_history_names_every_allocation_and_its_place(of_segments):
    seen = of_segments["history"]
    assert ["alloc", 12 * MIB] in seen["actions"]
    assert ["free_completed", 12 * MIB] in seen["actions"]
    assert seen["frames"]


def test_the_snapshot_and_the_summary_agree(of_segments):
    seen = of_segments["history"]
    assert ["active_allocated", 20 * MIB] in seen["blocks"]
    assert "20480 KiB" in seen["summary"]


def test_a_pool_holds_what_was_made_inside_it_and_returns_it(of_segments):
    assert of_segments["pool_of_its_own"] == [True, False, 16 * MIB, True]


def pluggable():
    """An allocator of another owner's own, and a function that counts the calls of its two functions."""
    library = str(pathlib.Path(os.environ["TEST_LIBRARIES"]) / "libspillway_test_plain_allocator.so")
    calls = ctypes.CDLL(library).plain_calls
    calls.restype = ctypes.c_int64
    return torch.cuda.memory.CUDAPluggableAllocator(library, "plain_malloc", "plain_free"), calls


def pluggable_pool():
    plain, calls = pluggable()
    pool = torch.cuda.MemPool(plain.allocator())
    with torch.cuda.use_mem_pool(pool):
        doubled = int((torch.ones(MIB, device="cuda") * 2).sum())
    return [doubled, calls(0)]


def pluggable_everywhere():
    plain, calls = pluggable()
    torch.cuda.memory.change_current_allocator(plain)
    return [fit_gpt("cuda"), calls(0), calls(1)]


def test_a_pluggable_allocator_serves_a_training_run(elsewhere, on_the_cpu):
    result, allocated, freed = elsewhere(pluggable_everywhere)
    assert result == on_the_cpu
    assert allocated > 1000
    assert freed > 1000


def test_a_pluggable_allocator_serves_a_pool():
    doubled, allocated = pluggable_pool()
    assert doubled == 2 * MIB
    assert allocated > 0


def pin():
    first = torch.arange(5000.0).pin_memory()
    address = first.data_ptr()
    there = first.to("cuda", non_blocking=True)
    del first  # before its copy has run
    torch.zeros(5000).pin_memory()
    arrived = there.cpu()
    return [torch.equal(arrived, torch.arange(5000.0)), torch.zeros(5000).pin_memory().data_ptr() == address]


def test_pinned_memory_is_used_again_only_when_its_copy_has_ended(elsewhere):
    assert elsewhere(pin, SPILLWAY_EMULATE_SCHEDULE="late") == [True, True]
