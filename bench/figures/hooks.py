# SPDX-License-Identifier: Apache-2.0
"""Figures of the saved-tensor engine."""

from __future__ import annotations

from bench.figures.registry import Session, figure


@figure("hooks_keep_over_python", "CPU time per saved tensor, engine / Python pair", "<= 1.5", "emulated")
def keep_over_python(session: Session) -> float:
    """A resident tensor costs the engine, with its accounting, about as much as an empty Python pair."""
    times = session.probe("hooks")
    return (times["keep"] - times["none"]) / (times["python"] - times["none"])


@figure(
    "hooks_move_over_save_on_cpu", "CPU time per saved tensor, engine / save_on_cpu", "<= 0.5", "emulated"
)
def move_over_save_on_cpu(session: Session) -> float:
    """An offloaded tensor costs less host time than in PyTorch's own save_on_cpu with pinned memory."""
    times = session.probe("hooks")
    return (times["move"] - times["none"]) / (times["save_on_cpu"] - times["none"])
