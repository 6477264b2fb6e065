# SPDX-License-Identifier: Apache-2.0
"""The options of a dry run."""

from __future__ import annotations

from dataclasses import dataclass

from spillway.dry_run.alternatives import Alternative

__all__ = ["Question"]


@dataclass(frozen=True)
class Question:
    """`profile` is the GPU's name, empty for none."""

    profile: str = ""
    samples: float | None = None
    steps: int | None = None  # after this many a process ends
    alternatives: tuple[Alternative, ...] = ()  # empty: the program as it is
    output: str | None = None  # of the JSON; "-" for stdout
