# SPDX-License-Identifier: Apache-2.0
"""What the emulated GPU costs, beside the CPU that it runs on."""

from __future__ import annotations

from bench.figures.registry import Session, figure


def ratio(session: Session, what: str) -> float:
    times = session.probe("emulation", what)
    return times["emulated"] / times["cpu"]


@figure("emulated_add_over_cpu", "CPU time of adding 4 elements, emulated GPU / CPU", "<= 2.6", "cpu")
def add(session: Session) -> float:
    """The smallest operator costs on the emulated GPU a little more than twice what it costs on the CPU."""
    return ratio(session, "add")


@figure("emulated_step_over_cpu", "CPU time of a demo training step, emulated GPU / CPU", "<= 1.3", "cpu")
def step(session: Session) -> float:
    """A training step on the emulated GPU costs about what it costs on the CPU."""
    return ratio(session, "step")


@figure("emulated_import_over_torch", "CPU time of import torch, emulated / plain", "<= 1.2", "cpu")
def import_torch(session: Session) -> float:
    """The emulated GPU adds little to the time that PyTorch takes to start."""
    return ratio(session, "import")


@figure("checked_step_over_emulated", "CPU time of a demo training step, checked / not", "<= 2", "cpu")
def checked_step(session: Session) -> float:
    """The order checker costs less than the training step that it checks."""
    times = session.probe("emulation", "check")
    return times["checked"] / times["plain"]
