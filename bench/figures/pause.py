# SPDX-License-Identifier: Apache-2.0
"""Figures of pause and resume."""

from __future__ import annotations

from bench.figures.registry import Session, figure

MEBIBYTES = "4096"


@figure("pause_copied_over_requested", "bytes copied each way / requested bytes", "= 1", "emulated")
def copied_over_requested(session: Session) -> float:
    """A pause and a resume of 4 GiB in 1000 tensors copy the requested bytes and nothing else."""
    run = session.probe("pause", MEBIBYTES)
    worst = max(run["copied_bytes"], run["copied_back_bytes"])
    return worst / run["allocated_bytes"] if run["intact"] else 0.0


@figure("pause_share_of_link", "bytes / (time x link), the slower way", ">= 0.9", "gpu")
def share_of_link(session: Session) -> float:
    """They take little longer than the link needs."""
    run = session.probe("pause", MEBIBYTES)
    out, back = run["pause_seconds"] * run["links"]["out"], run["resume_seconds"] * run["links"]["in"]
    return run["allocated_bytes"] / max(out, back)
