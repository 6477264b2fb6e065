# SPDX-License-Identifier: Apache-2.0
"""torch.cuda.MemPool over Spillway's heap, with and without an allocator of its own."""

import os

import pytest
from conftest import EMULATED, run

USE = "import torch, spillway\nspillway.use_allocator()\n"

SESSION = """
import gc, threading
facts = {}
MiB = 1 << 20
def make(n):
    return torch.empty(n, dtype=torch.uint8, device="cuda")
def raised(attempt):
    try:
        attempt()
    except Exception as error:
        return [type(error).__name__, str(error)]

pool = torch.cuda.MemPool()
with torch.cuda.use_mem_pool(pool):
    inside = make(4 * MiB)
    elsewhere = []
    thread = threading.Thread(target=lambda: elsewhere.append(make(4 * MiB)))
    thread.start(), thread.join()
outside = make(4 * MiB)
facts["users"] = pool.use_count()
own = pool.snapshot()
def within(segments, tensor):
    return any(s["address"] <= tensor.data_ptr() < s["address"] + s["total_size"] for s in segments)
facts["snapshot"] = [within(own, t) for t in (inside, outside, elsewhere[0])]
facts["ids"] = [s["segment_pool_id"] == pool.id for s in own]

at = inside.data_ptr()
del inside
with torch.cuda.use_mem_pool(pool):
    again = make(4 * MiB)
facts["reused"] = again.data_ptr() == at
del again
torch.cuda.empty_cache()
facts["kept"] = sum(s["total_size"] for s in pool.snapshot())
before = torch.cuda.memory_reserved()
del pool
gc.collect()
facts["released"] = before - torch.cuda.memory_reserved()

# Blocks may outlive their pool.
pool = torch.cuda.MemPool()
with torch.cuda.use_mem_pool(pool):
    survivor = torch.full((MiB,), 7.0, device="cuda")
del pool
facts["survivor"] = survivor.unique().tolist()
reserved = torch.cuda.memory_reserved()
del survivor
facts["survivor_back"] = reserved - torch.cuda.memory_reserved()

# A pool that may be used when memory is out.
del outside, elsewhere
gc.collect()
torch.cuda.empty_cache()
torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 64 * MiB)
                                           / torch.cuda.mem_get_info()[1])
lender = torch.cuda.MemPool(use_on_oom=True)
with torch.cuda.use_mem_pool(lender):
    lent = make(40 * MiB)
del lent
facts["lent"] = within(lender.snapshot(), make(40 * MiB))
stats = torch.cuda.memory_stats()
facts["retries"] = stats["num_alloc_retries"]
miser = torch.cuda.MemPool()
del lender
gc.collect()
with torch.cuda.use_mem_pool(miser):
    hoard = make(40 * MiB)
del hoard
facts["not_lent"] = raised(lambda: make(40 * MiB))[0]
del miser
gc.collect()
make(40 * MiB)
torch.cuda.set_per_process_memory_fraction(1.0)

# No two blocks of a pool that does not split share physical memory.
whole = torch.cuda.MemPool(no_split=True)
with torch.cuda.use_mem_pool(whole):
    few = [make(1000) for _ in range(2)]
facts["apart"] = abs(few[0].data_ptr() - few[1].data_ptr()) >= 2 * MiB
del few

twice = torch.cuda.MemPool()
def nested():
    with torch.cuda.use_mem_pool(twice), torch.cuda.use_mem_pool(twice):
        pass
facts["nested"] = raised(nested)
facts["not_open"] = raised(lambda: torch._C._cuda_endAllocateToPool(0, (5, 5)))
facts["unknown"] = raised(lambda: torch._C._cuda_releasePool(0, (5, 5)))

# Checkpoints, as torch.compile's graph trees make them.
graph = torch.cuda.CUDAGraph()
x = torch.ones(MiB, device="cuda")
with torch.cuda.graph(graph):
    a = x + 1
    b = a + 1
id = graph.pool()
expected = {t.untyped_storage().data_ptr() for t in (a, b)}
facts["live"] = [torch._C._cuda_checkPoolLiveAllocations(0, id, expected),
                 torch._C._cuda_checkPoolLiveAllocations(0, id, {a.data_ptr()})]
state = torch._C._cuda_getCheckpointState(0, id)
a_at, b_at = a.data_ptr(), b.data_ptr()
del b
facts["after_free"] = torch._C._cuda_checkPoolLiveAllocations(0, id, {a_at})
other = torch.cuda.CUDAGraph()
with torch.cuda.graph(other, pool=id):
    c = x * 2
facts["not_handed_out"] = c.data_ptr() != b_at
torch._C._cuda_setCheckpointPoolState(0, state, [c.untyped_storage()._cdata], [])
facts["restored"] = torch._C._cuda_checkPoolLiveAllocations(0, id, expected)
report(facts)
"""


@pytest.fixture(scope="module")
def seen():
    return run(USE + SESSION)


def test_what_one_thread_allocates_in_a_pool_is_in_it_and_nothing_else(seen):
    assert seen["snapshot"] == [True, False, False]
    assert seen["ids"] and all(seen["ids"])
    assert seen["users"] == 1


def test_a_pool_reuses_its_memory_and_keeps_it_when_the_cache_is_emptied(seen):
    assert seen["reused"]
    assert seen["kept"] >= 4 << 20


def test_a_pool_that_is_gone_gives_its_memory_back(seen):
    assert seen["released"] >= 4 << 20


def test_blocks_outlive_their_pool(seen):
    assert seen["survivor"] == [7.0] and seen["survivor_back"] >= 4 << 20


def test_memory_of_a_pool_is_lent_when_memory_is_out_only_where_it_was_allowed(seen):
    assert seen["lent"] and seen["retries"] >= 1
    assert seen["not_lent"] == "OutOfMemoryError"


def test_blocks_of_a_pool_that_does_not_split_share_no_memory(seen):
    assert seen["apart"]


def test_misuse_of_pools_is_an_error_that_states_what_is_wrong(seen):
    for name, words in (("nested", "already go"), ("not_open", "cannot end"), ("unknown", "no memory pool")):
        assert seen[name] is not None and words in seen[name][1]


def test_a_checkpoint_knows_which_blocks_live(seen):
    assert seen["live"] == [True, False] and seen["after_free"]


def test_going_back_to_a_checkpoint_brings_its_blocks_back_at_their_addresses(seen):
    assert seen["not_handed_out"] and seen["restored"]


PLAIN = os.path.join(os.environ.get("TEST_LIBRARIES", ""), "libspillway_test_plain_allocator.so")


@pytest.mark.skipif(not EMULATED, reason="the test's own allocator takes memory from the emulated runtime")
def test_a_pool_with_an_allocator_of_its_own_takes_its_memory_there(program):
    facts = program(
        USE
        + f"""
import ctypes
import gc
library = ctypes.CDLL({PLAIN!r})
"""
        + """
facts = {}
def counted():
    return [library.plain_calls(which) for which in (0, 1)]
plain = torch.cuda.memory.CUDAPluggableAllocator(library._name, "plain_malloc", "plain_free").allocator()
pool = torch.cuda.MemPool(plain)
held = torch.cuda.memory_reserved()
side = torch.cuda.Stream()
with torch.cuda.use_mem_pool(pool):
    a = torch.full((1 << 18,), 2.0, device="cuda")
    b = torch.full((1000,), 3.0, device="cuda")
    at = b.data_ptr()
    b.record_stream(side)
    del b
    c = torch.full((1000,), 4.0, device="cuda")
facts["ours"] = torch.cuda.memory_reserved() == held
facts["values"] = [a.sum().item(), c.sum().item()]
facts["same"] = c.data_ptr() == at
facts["counts"] = counted()
facts["snapshot"] = sum(s["allocated_size"] for s in pool.snapshot())
facts["base"] = a[5:].untyped_storage().data_ptr() == a.data_ptr()
del a, c
gc.collect()
facts["cached"] = counted()
del pool
gc.collect()
facts["gone"] = counted()
report(facts)
"""
    )
    assert facts["values"] == [2.0 * (1 << 18), 4000.0]
    assert facts["same"] and facts["ours"]
    assert facts["counts"][0] >= 1 and facts["counts"][1] == 0
    assert facts["snapshot"] == (1 << 20) + 4096
    assert facts["cached"] == facts["counts"]
    assert facts["gone"] == [facts["counts"][0]] * 2


def test_spillway_itself_may_be_a_pools_own_allocator(program):
    facts = program(
        USE
        + """
import gc
pool = torch.cuda.MemPool(spillway.memory.pluggable_allocator().allocator())
with torch.cuda.use_mem_pool(pool):
    a = torch.full((1 << 18,), 2.0, device="cuda")
total = a.sum().item()
del a, pool
gc.collect()
torch.cuda.empty_cache()
report([total, torch.cuda.memory_allocated(), torch.cuda.memory_reserved()])
"""
    )
    assert facts == [2.0 * (1 << 18), 0, 0]
