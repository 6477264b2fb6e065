# SPDX-License-Identifier: Apache-2.0
"""Figures of the saved-tensor engine."""

from __future__ import annotations

from bench.figures.registry import Session, figure


@figure("hooks_engine_over_python", "time per saved tensor, engine / Python hook pair", "<= 0.8", "emulated")
def engine_over_python(session: Session) -> float:
    """A tensor that stays is packed and unpacked in less time than by a Python pair that does nothing."""
    times = session.probe("hooks")
    return (times["engine"] - times["none"]) / (times["python"] - times["none"])
