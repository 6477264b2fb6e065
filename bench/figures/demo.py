# SPDX-License-Identifier: Apache-2.0
"""Figures of one run of the demonstration."""

from __future__ import annotations

from bench.figures.registry import Session, figure


def moving(session: Session) -> list[dict]:
    """The variants that offload, with plain under "plain" in each."""
    plain, *variants = session.demo()["variants"]
    return [{**variant, "plain": plain} for variant in variants]


def everything(session: Session) -> dict:
    return next(variant for variant in moving(session) if variant["ratio"] == 1.0)


@figure("demo_losses_equal", "share of variants", "= 1", "emulated")
def losses_equal(session: Session) -> float:
    """Losses and gradients of every step have plain PyTorch's bits."""
    variants = moving(session)
    return sum(variant["losses_equal_plain"] and variant["grads_equal_plain"] for variant in variants) / len(
        variants
    )


@figure("demo_peak_saved", "share of plain's peak", ">= 0.3", "emulated")
def peak_saved(session: Session) -> float:
    """With ratio 1 the peak of device memory is lower than plain PyTorch's by this share."""
    variant = everything(session)
    return 1 - variant["peak_device_bytes"] / variant["plain"]["peak_device_bytes"]


@figure("demo_peak_fall_held", "fall of the peak / bytes offloaded at the peak", ">= 0.9", "emulated")
def peak_fall_held(session: Session) -> float:
    """The peak of reserved bytes falls by the bytes that are offloaded at that peak; worst variant."""
    return min(
        (variant["plain"]["peak_device_bytes"] - variant["peak_device_bytes"])
        / max(variant["offloaded_at_peak_bytes"], 1)
        for variant in moving(session)
    )


@figure("demo_peak_fall_live", "fall of the peak / bytes offloaded at the peak", ">= 0.9", "emulated")
def peak_fall_live(session: Session) -> float:
    """The same for allocated bytes."""
    return min(
        (variant["plain"]["peak_allocated_bytes"] - variant["peak_allocated_bytes"])
        / max(variant["offloaded_at_allocated_peak_bytes"], 1)
        for variant in moving(session)
    )


@figure("demo_fall_at_plains_peak", "fall / bytes offloaded then", ">= 0.9", "emulated")
def fall_at_plains_peak(session: Session) -> float:
    """At plain's peak of allocated bytes, a variant has as many fewer as are offloaded; worst variant."""
    shares = []
    for variant in moving(session):
        plain = variant["plain"]["memory"]
        peak = max(range(len(plain)), key=lambda place: plain[place]["allocated_bytes"])
        then = variant["memory"][peak]
        shares.append(
            (plain[peak]["allocated_bytes"] - then["allocated_bytes"]) / max(then["offloaded_bytes"], 1)
        )
    return min(shares)


@figure("demo_offloaded_over_ratio", "bytes above ratio x offloadable, most in any step", "<= 0", "emulated")
def offloaded_over_ratio(session: Session) -> float:
    """No step of any variant, the first included, offloads more than its ratio of the offloadable bytes."""
    return max(
        offloaded - int(variant["ratio"] * saved)
        for variant in moving(session)
        for offloaded, saved in zip(
            variant["offloaded_bytes_by_step"], variant["saved_bytes_by_step"], strict=True
        )
    )


@figure("demo_offloaded_at_one", "share of the offloadable bytes", "= 1", "emulated")
def offloaded_at_one(session: Session) -> float:
    """With ratio 1 every offloadable byte is offloaded and fetched, from the first step on."""
    variant = everything(session)
    offloaded = all(
        a == b
        for a, b in zip(variant["offloaded_bytes_by_step"], variant["saved_bytes_by_step"], strict=True)
    )
    return variant["fetched_bytes"] / max(variant["saved_bytes"], 1) if offloaded else 0.0


@figure("demo_pinned_overhead", "pinned bytes / bytes in slots at the peak", "<= 1.03", "emulated")
def pinned_overhead(session: Session) -> float:
    """Pinned host memory hardly exceeds the bytes in its slots; worst variant."""
    return max(
        variant["host_pinned_bytes"] / max(variant["host_slots_peak_bytes"], 1) for variant in moving(session)
    )


@figure("demo_steady_driver_allocs", "calls after step 2", "= 0", "emulated")
def steady_driver_allocs(session: Session) -> float:
    """After the second step Spillway asks the driver for no memory and registers none."""
    return max(variant["steady_driver_allocs"] for variant in moving(session))


@figure("demo_steady_host_syncs", "calls after step 2", "= 0", "emulated")
def steady_host_syncs(session: Session) -> float:
    """After the second step Spillway never makes the host wait for the device."""
    return max(variant["steady_host_syncs"] for variant in moving(session))


@figure("demo_torch_allocator_losses_equal", "share of variants", "= 1", "emulated")
def torch_allocator_losses_equal(session: Session) -> float:
    """The same bits over PyTorch's own allocator."""
    variants = session.demo("torch")["variants"][1:]
    return sum(variant["losses_equal_plain"] and variant["grads_equal_plain"] for variant in variants) / len(
        variants
    )
