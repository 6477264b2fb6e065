# SPDX-License-Identifier: Apache-2.0
"""The project's figures: `scripts/figures`. A module per subject; importing this registers them all."""

from bench.figures import (  # noqa: F401 (importing registers)
    demo,
    emulation,
    fences,
    fragmentation,
    heap,
    hooks,
    micro,
    parts,
    pause,
    planning,
    preload,
    recompute,
    top,
    transfer,
)
