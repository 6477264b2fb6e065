# SPDX-License-Identifier: Apache-2.0
"""PyTorch's memory viewer over Spillway's heap: snapshots, and the history of what led to them."""

import pytest
from conftest import run

USE = "import torch, spillway\nspillway.use_allocator()\n"
NATIVE = "import torch\n"

# Everything that is asked below, from one process: a training step under a full history.
SESSION = """
from torch.cuda import _memory_viz as viz

def make(n):
    return torch.empty(n, dtype=torch.uint8, device="cuda")

before = make(1000)  # nothing was recording
torch.cuda.memory._record_memory_history(stacks="python", max_entries=1000)
kept = make(3 << 20)
first = kept.data_ptr()
gone = make(5 << 20)
freed_at = gone.data_ptr()
del gone
with torch.cuda.stream(torch.cuda.Stream()):
    other = make(100 << 20)
torch.cuda.empty_cache()
try:
    make(1 << 45)
except torch.cuda.OutOfMemoryError:
    pass
snapshot = torch.cuda.memory._snapshot()
blocks = [b for s in snapshot["segments"] for b in s["blocks"] if b["state"] == "active_allocated"]
(trace,) = [t for t in snapshot["device_traces"] if t]
balance = [
    sum(s["total_size"] for s in snapshot["segments"]) == torch.cuda.memory_reserved(),
    sum(s["allocated_size"] for s in snapshot["segments"]) == torch.cuda.memory_allocated(),
    sum(b["requested_size"] for b in blocks) == torch.cuda.memory_stats()["requested_bytes.all.current"],
    all(sum(b["size"] for b in s["blocks"]) == s["total_size"] for s in snapshot["segments"]),
    all(b["address"] == s["address"] + sum(c["size"] for c in s["blocks"][:i])
        for s in snapshot["segments"] for i, b in enumerate(s["blocks"])),
]
live = {b["address"]: b for b in blocks}
pages = [len(page(snapshot)) for page in (viz.trace_plot, viz.segment_plot)]
texts = [viz.trace(snapshot), viz.segsum(snapshot)]
flames = [viz.segments(snapshot, format_flamegraph=str), viz.memory(snapshot, format_flamegraph=str)]
named = lambda frames: sorted({f["name"] for f in frames})

torch.cuda.memory._record_memory_history(
    "all", context=None, max_entries=4, clear_history=True, skip_actions=["free_requested"])
for _ in range(10):
    make(1 << 20)
short = [t for t in torch.cuda.memory._snapshot()["device_traces"] if t][0]
torch.cuda.memory._record_memory_history("state", context="state", stacks="python")
state_only = make(2 << 20)
state = torch.cuda.memory._snapshot()
blocks = [b for s in state["segments"] for b in s["blocks"]]
state_frames = [b["frames"] for b in blocks if b["address"] == state_only.data_ptr()]
state_traces = [e for t in state["device_traces"] for e in t if e.get("frames")]
torch.cuda.memory._record_memory_history(enabled=None)
off = make(4 << 20)
silent = torch.cuda.memory._snapshot()
report({
    "keys": [sorted(snapshot), sorted(snapshot["segments"][0]), sorted(snapshot["segments"][0]["blocks"][0]),
             sorted(trace[0]), sorted(snapshot["allocator_settings"])],
    "actions": [[e["action"], e["size"]] for e in trace],
    "addresses": [[e["action"], e.get("addr")] for e in trace],
    "times": [e["time_us"] for e in trace],
    "first": first, "freed_at": freed_at, "before_frames": live[before.data_ptr()].get("frames"),
    "kept_frames": named(live[first]["frames"]),
    "alloc_frames": named([e for e in trace if e["action"] == "alloc"][0]["frames"]),
    "free_frames": named([e for e in trace if e["action"] == "free_requested"][0]["frames"]),
    "balance": balance, "pages": pages, "texts": [len(t) for t in texts], "flames": [len(f) for f in flames],
    "short": [e["action"] for e in short], "short_frames": sum(len(e.get("frames", ())) for e in short),
    "state_frames": [named(f) for f in state_frames], "state_traces": len(state_traces),
    "silent": sum(len(t) for t in silent["device_traces"]), "enabled": torch._C._cuda_isHistoryEnabled(),
})
"""


@pytest.fixture(scope="module")
def seen():
    return run(USE + SESSION)


@pytest.fixture(scope="module")
def native():
    return run(NATIVE + SESSION)


def test_a_snapshot_has_the_entries_that_the_viewer_knows(seen, native):
    assert seen["keys"] == native["keys"]


def test_a_snapshot_balances_with_the_statistics(seen):
    assert seen["balance"] == [True] * 5


def test_every_allocation_and_free_is_an_event(seen):
    actions = [each for each in seen["actions"] if not each[0].startswith("segment")]
    assert actions[:6] == [
        ["alloc", 3 << 20],
        ["alloc", 5 << 20],
        ["free_requested", 5 << 20],
        ["free_completed", 5 << 20],
        ["alloc", 100 << 20],
        ["oom", 1 << 45],
    ]
    assert actions[-1][0] == "snapshot"
    at = [address for action, address in seen["addresses"] if not action.startswith("segment")]
    assert at[0] == seen["first"] and at[1:4] == [seen["freed_at"]] * 3


def test_memory_is_mapped_before_it_is_handed_out_and_unmapped_when_released(seen):
    names = [action for action, _ in seen["actions"]]
    sizes = dict.fromkeys(names, 0)
    for action, size in seen["actions"]:
        sizes[action] += size
    assert sizes["segment_map"] >= 108 << 20
    assert sizes["segment_unmap"] >= 4 << 20
    large = seen["actions"].index(["alloc", 100 << 20])
    mapped_before = sum(size for action, size in seen["actions"][:large] if action == "segment_map")
    assert mapped_before >= 100 << 20
    assert names.index("segment_unmap") > large


def test_events_are_in_the_order_of_their_times(seen):
    assert seen["times"] == sorted(seen["times"]) and seen["times"][0] > 1e15


def test_blocks_and_events_carry_python_stacks(seen):
    assert "make" in seen["kept_frames"] and "make" in seen["alloc_frames"]
    assert "<module>" in seen["free_frames"] and "make" not in seen["free_frames"]


def test_what_was_allocated_before_recording_has_no_stack(seen):
    assert not seen["before_frames"]


def test_the_viewers_pages_and_summaries_can_be_made(seen, native):
    assert all(length > 0.5 * other for length, other in zip(seen["pages"], native["pages"], strict=True))
    assert all(length > 100 for length in seen["texts"] + seen["flames"])


def test_the_history_keeps_the_last_events_that_are_not_skipped(seen):
    assert seen["short"] == ["free_completed", "alloc", "free_completed", "snapshot"]
    assert seen["short_frames"] == 0


def test_state_keeps_the_stacks_of_allocated_blocks_only(seen):
    assert seen["state_frames"] and "make" in seen["state_frames"][0]
    assert seen["state_traces"] == 0


def test_nothing_is_recorded_after_it_was_switched_off(seen):
    assert seen["silent"] == 0 and not seen["enabled"]
