# SPDX-License-Identifier: Apache-2.0
"""The lines on stderr that name what the emulated GPU substitutes."""

from __future__ import annotations

import functools
import sys


@functools.cache
def announce(what: str) -> None:
    """Prints the line once."""
    print(f"spillway-emulator: {what}", file=sys.stderr, flush=True)
