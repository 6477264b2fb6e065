# SPDX-License-Identifier: Apache-2.0
"""The figure of the statistics page that `spillway top` shows."""

from __future__ import annotations

from bench.figures.registry import Session, figure


@figure("top_share_of_step", "share of a step of the demonstration", "<= 0.001", "emulated")
def share_of_step(session: Session) -> float:
    """`spillway top` costs the training step that it watches less than a thousandth."""
    run = session.probe("top")
    # Each offload is reported to the page three times (out, back, end), at about the cost of an allocation.
    events = run["allocations"] + 3 * run["moves"]
    return (run["step"] + events * max(run["allocation"], 0)) / run["nanoseconds"]
