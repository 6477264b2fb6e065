# SPDX-License-Identifier: Apache-2.0
"""Figures of the host arena and the copies."""

from __future__ import annotations

from bench.figures.registry import Session, figure


@figure("pinned_over_slots", "pinned bytes / peak of the bytes in slots, worst sizes", "<= 1.03", "emulated")
def pinned_over_slots(session: Session) -> float:
    """Pinned host memory is the peak of the bytes in its slots, for sizes just over powers of two as well."""
    probes = [session.probe("pinned", sizes) for sizes in ("just_over", "equal", "varying")]
    return max(probe["pinned"] / probe["slots"] for probe in probes)


@figure("copy_parts_over_one", "time of 256 MiB to the host, in parts / in one copy", "<= 1.01", "emulated")
def copy_parts_over_one(session: Session) -> float:
    """A large copy in parts, so that urgent ones can pass, takes no longer (emulated GPU: virtual clock)."""
    times = session.probe("parts")
    return times["parts"] / times["one"]
