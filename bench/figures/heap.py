# SPDX-License-Identifier: Apache-2.0
"""Figures of the heap: what a block from the cache costs, beside PyTorch's own allocator in the same run."""

from __future__ import annotations

from bench.figures.registry import Session, figure


@figure(
    "hit_native_over_spillway",
    "p50 of allocating and freeing a cached block, PyTorch / Spillway",
    ">= 3",
    "cpu",
)
def hit_speed(session: Session) -> float:
    """A cached block costs a third of the time of PyTorch's allocator, both called through its interface."""
    native, spillway = (session.program("allocator_bench", name)["p50_ns"] for name in ("native", "spillway"))
    return native / spillway


@figure(
    "hit_tail_native_over_spillway", "p99.9 of the same, clock included, PyTorch / Spillway", ">= 1", "cpu"
)
def hit_tail(session: Session) -> float:
    """The slowest of a thousand takes no longer than with PyTorch's allocator."""
    native, spillway = (
        session.program("allocator_bench", name)["p999_ns"] for name in ("native", "spillway")
    )
    return native / spillway


@figure(
    "hit_instructions_native_over_spillway",
    "instructions for allocating and freeing a cached block, PyTorch / Spillway",
    ">= 3",
    "cpu",
)
def hit_instructions(session: Session) -> float:
    """A cached block takes a third of the instructions that PyTorch's allocator takes."""
    native, spillway = (
        session.instructions("allocator_bench", "*Churn::churn*", name, "2560")
        for name in ("native", "spillway")
    )
    return native / spillway


@figure(
    "heap_hit_ns",
    "ns of CPU for allocating and freeing a cached 4 KiB block, without PyTorch",
    "<= 150",
    "cpu",
)
def heap_hit(session: Session) -> float:
    """The heap alone takes some tens of nanoseconds for a cached block; on this machine, this many."""
    return session.benchmark("heap_bench")["BM_AllocateBlock/emulated/4096"]


@figure("heap_eight_streams", "CPU time of a hit, 8 threads and streams / 1", "<= 2", "cpu")
def eight_streams(session: Session) -> float:
    """Threads with a stream each do not wait for each other."""
    times = session.benchmark("heap_bench")
    return times["BM_ManyStreams/emulated/threads:8"] / times["BM_ManyStreams/emulated/threads:1"]


@figure("heap_many_free", "CPU time of a hit, 100 000 free blocks / 100", "<= 1.5", "cpu")
def many_free(session: Session) -> float:
    """How many blocks are free does not change what a hit costs."""
    times = session.benchmark("heap_bench")
    return times["BM_HitAmongFree/emulated/100000"] / times["BM_HitAmongFree/emulated/100"]


@figure("replay_over_hit", "CPU time of a step's requests, with its plan / without one", "<= 0.25", "cpu")
def replay(session: Session) -> float:
    """A request of a step that follows its plan costs a quarter of a cached block, without PyTorch."""
    times = session.benchmark("heap_bench")
    return times["BM_Step/emulated/replay:1"] / times["BM_Step/emulated/replay:0"]


@figure(
    "replay_over_hit_torch",
    "p50 of a step's requests through PyTorch's interface, with its plan / without one",
    "<= 0.75",
    "cpu",
)
def replay_torch(session: Session) -> float:
    """PyTorch's interface has a cost of its own, which no plan lowers."""
    replayed, spillway = (
        session.program("allocator_bench", name)["step_p50_ns"] for name in ("replayed", "spillway")
    )
    return replayed / spillway
