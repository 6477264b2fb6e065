# SPDX-License-Identifier: Apache-2.0
"""The types of `spillway.stats()`, whose docstring describes each key. Sizes are bytes."""

from __future__ import annotations

from typing import Literal, TypedDict

__all__ = [
    "CannotHelp",
    "DeviceStats",
    "DriverStats",
    "HeapStats",
    "HostStats",
    "PauseStats",
    "PendingSources",
    "PinRefusals",
    "ResidencyStats",
    "SkippedStorages",
    "Stats",
    "StepStats",
    "TagStats",
]


class CannotHelp(TypedDict):
    """Why offloading does not lower the peak."""

    reason: Literal["optimizer", "evaluation", "operator", "compiled_graph", "other_offloader", "model_state"]
    text: str
    bytes: int
    device: int


class DriverStats(TypedDict):
    """Driver calls, over all devices."""

    allocations: int
    registrations: int
    host_syncs: int
    lost_streams: int


class PendingSources(TypedDict):
    """Memory of PyTorch's own allocator that copies still read."""

    bytes: int
    peak_bytes: int


class SkippedStorages(TypedDict):
    """Saved storages that were not offloaded, for one reason."""

    storages: int
    bytes: int


class StepStats(TypedDict):
    """One training step of one tag."""

    step: int
    offloadable_bytes: int
    offloaded_bytes: int
    copied_bytes: int
    fetched_bytes: int
    left_to_recompute_bytes: int
    recomputed_bytes: int
    skipped: dict[str, SkippedStorages]


class TagStats(TypedDict):
    """The regions of one tag."""

    ratio: float
    plan_mismatches: int
    running: StepStats
    last: StepStats


class HeapStats(TypedDict):
    """The heap of one GPU."""

    allocated_bytes: int
    allocated_peak_bytes: int
    requested_bytes: int
    reserved_bytes: int
    reserved_peak_bytes: int
    offloaded_at_allocated_peak_bytes: int
    offloaded_at_reserved_peak_bytes: int
    evicted_bytes: int
    cached_bytes: int
    rounding_bytes: int
    stranded_bytes: int
    pending_bytes: int
    allocated_blocks: int
    allocations: int
    frees: int
    driver_allocations: int
    driver_releases: int
    fence_waits: int
    out_of_memory: int
    bad_frees: int
    over_budget: int
    plan_replayed: int
    plan_mismatches: int


class PinRefusals(TypedDict):
    """How often host memory was not pinned, by the limit that refused it."""

    limit: int
    node: int
    machine: int
    driver: int


class HostStats(TypedDict):
    """Pinned host memory of one GPU."""

    pinned_bytes: int
    pinned_peak_bytes: int
    in_slots_bytes: int
    in_slots_peak_bytes: int
    registrations: int
    huge_bytes: int
    advised_bytes: int
    on_node_bytes: int
    node: int
    refused: PinRefusals


class ResidencyStats(TypedDict):
    """Storages that were offloaded from one GPU."""

    stashed_bytes: int
    fetched_bytes: int
    on_host_bytes: int
    offloaded_bytes: int
    stashes: int
    fetches: int
    dropped: int


class PauseStats(TypedDict):
    """Paused memory of one GPU."""

    blocks: int
    paused_bytes: int
    on_host_bytes: int
    copied_out_bytes: int
    copied_in_bytes: int


class DeviceStats(TypedDict):
    """One GPU."""

    heap: HeapStats
    host: HostStats
    residency: ResidencyStats
    pauses: PauseStats


class Stats(TypedDict):
    """What `spillway.stats()` returns."""

    steps: int
    live_handles: int
    allocator: str
    ours: bool
    emulated: bool
    cannot_help: CannotHelp | None
    driver: DriverStats
    pending_sources: PendingSources
    tags: dict[str, TagStats]
    devices: dict[int, DeviceStats]
