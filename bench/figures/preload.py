# SPDX-License-Identifier: Apache-2.0
"""Figures of the preload library, each beside a call that it does not touch, in the same process."""

from __future__ import annotations

from bench.figures.registry import Session, figure


@figure(
    "preload_counting_over_direct",
    "time of an empty driver launch, counted / through the PLT alone",
    "<= 2",
    "cpu",
)
def counting(session: Session) -> float:
    """In the default mode the library adds less to a launch than another call would."""
    times = session.program("preload_bench")
    return times["counting"] / times["direct"]


@figure(
    "preload_recording_over_direct",
    "time of an empty driver launch, recorded / through the PLT alone",
    "<= 8",
    "cpu",
)
def recording(session: Session) -> float:
    """Recording a launch, of which one in eight reads the clock, costs some nanoseconds before its file is
    written."""
    times = session.program("preload_bench")
    return times["recording"] / times["direct"]


@figure(
    "preload_recording_copy_over_direct",
    "time of an empty driver copy, recorded / of an empty launch through the PLT alone",
    ">= 0",
    "cpu",
)
def recording_copy(session: Session) -> float:
    """Recording any other call: each reads the clock, which is most of its cost."""
    times = session.program("preload_bench")
    return times["recording_copy"] / times["direct"]


@figure(
    "preload_dlsym_over_plain",
    "time of a look-up of a foreign name, ours / the C library's dlsym",
    "<= 1.1",
    "cpu",
)
def foreign_look_up(session: Session) -> float:
    """A look-up of a name that is not CUDA's hardly costs more than the C library's own."""
    times = session.program("preload_bench")
    return times["dlsym"] / times["plain_dlsym"]


@figure("preload_share_of_step", "share of a step of the demonstration", "<= 0.005", "gpu")
def share_of_step(session: Session) -> float:
    """The cost of recording all calls of a training step and writing the file; on the emulated GPU kernels
    are no calls."""
    return _share(session, session.preloaded("preload_step"))


@figure("preload_share_of_step_predicted", "share of a step of the demonstration", "<= 0.005", "cpu")
def predicted_share_of_step(session: Session) -> float:
    """The same for a step that a dry run with an H200's profile predicts, with each kernel as one call."""
    return _share(session, session.dry("h200", "preload_step"))


def _share(session: Session, step: dict) -> float:
    times = session.program("preload_bench")
    most_expensive = max(times["recording"], times["recording_copy"]) + times["writing"]
    return (step["calls"] + step["kernels"]) * most_expensive / step["nanoseconds"]
