# SPDX-License-Identifier: Apache-2.0
"""The parts of `spillway.stats()` that the demonstration shows."""

from __future__ import annotations

from typing import Any

Stats = dict[str, Any]


def nothing_offloaded() -> Stats:
    """step_bytes of a variant without Spillway."""
    return {"saved_bytes": 0, "offloaded_bytes": 0, "fetched_bytes": 0, "skipped": {}}


def step_bytes(stats: Stats) -> Stats:
    """Unique bytes of the last step over all tags: offloadable, offloaded, fetched, and skipped by reason."""
    result = nothing_offloaded()
    for tag in stats["tags"].values():
        last = tag["last"]
        result["saved_bytes"] += last["offloadable_bytes"]
        result["offloaded_bytes"] += last["offloaded_bytes"]
        result["fetched_bytes"] += last["fetched_bytes"]
        for reason, count in last["skipped"].items():
            if count["storages"]:
                seen = result["skipped"].setdefault(reason, {"storages": 0, "bytes": 0})
                seen["storages"] += count["storages"]
                seen["bytes"] += count["bytes"]
    return result


def driver_counts(stats: Stats) -> dict[str, int]:
    """What Spillway asked of the driver since the process began, by the emulated GPU's names."""
    driver = stats["driver"]
    return {
        "device_allocations": driver["allocations"],
        "host_registrations": driver["registrations"],
        "host_syncs": driver["host_syncs"],
    }


def no_totals() -> Stats:
    """totals of a variant without Spillway."""
    return {
        "host_peak_bytes": 0,
        "host_pinned_bytes": 0,
        "host_slots_peak_bytes": 0,
        "offloaded_at_peak_bytes": 0,
        "offloaded_at_allocated_peak_bytes": 0,
    }


def totals(stats: Stats) -> Stats:
    """Pinned bytes and offloaded bytes at the peaks, over all devices and the whole run."""
    result = no_totals()
    for device in stats["devices"].values():
        result["host_peak_bytes"] += device["host"]["pinned_peak_bytes"]
        result["host_pinned_bytes"] += device["host"]["pinned_bytes"]
        result["host_slots_peak_bytes"] += device["host"]["in_slots_peak_bytes"]
        result["offloaded_at_peak_bytes"] += device["heap"]["offloaded_at_reserved_peak_bytes"]
        result["offloaded_at_allocated_peak_bytes"] += device["heap"]["offloaded_at_allocated_peak_bytes"]
    return result


def offloaded(stats: Stats) -> int:
    """Bytes that are on the host instead of the device now."""
    return sum(device["residency"]["offloaded_bytes"] for device in stats["devices"].values())
