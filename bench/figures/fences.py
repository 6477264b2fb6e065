# SPDX-License-Identifier: Apache-2.0
"""Fences on freed memory beside the two other ways to keep it until a copy has read it.

All variants run the same steps; on the emulated GPU times are those of the virtual clock.
"""

from __future__ import annotations

from bench.figures.registry import Session, figure


@figure("fences_peak_over_held", "reserved bytes, fences / holding references", "<= 0.8", "emulated")
def peak_over_held(session: Session) -> float:
    """Fences on freed blocks need less memory in a step than references to tensors until they are copied."""
    variants = session.probe("fences")
    return variants["fences"]["peak_bytes"] / variants["held"]["peak_bytes"]


@figure("fences_step_over_held", "time of a step, fences / holding references", "<= 1.1", "emulated")
def step_over_held(session: Session) -> float:
    """A wait for a copy when its block is reused costs a step nothing: the link limits it."""
    variants = session.probe("fences")
    return variants["fences"]["step_ms"] / variants["held"]["step_ms"]


@figure("fences_step_over_record_stream", "time of a step, fences / record_stream", "<= 1.1", "emulated")
def step_over_record_stream(session: Session) -> float:
    """A step with fences on freed blocks takes no longer than with record_stream."""
    variants = session.probe("fences")
    return variants["fences"]["step_ms"] / variants["record_stream"]["step_ms"]


@figure("fences_host_syncs", "times the host waits in a step, fences", "= 0", "emulated")
def waits(session: Session) -> float:
    """With fences on freed blocks the host waits for nothing in a step."""
    return session.probe("fences")["fences"]["host_syncs"]


@figure("fences_peak_over_record_stream", "reserved bytes, fences / record_stream", "<= 0.8", "emulated")
def peak_over_record_stream(session: Session) -> float:
    """With fences on freed blocks a step needs less memory than with record_stream."""
    variants = session.probe("fences")
    return variants["fences"]["peak_bytes"] / variants["record_stream"]["peak_bytes"]
