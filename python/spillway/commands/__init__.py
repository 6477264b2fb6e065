# SPDX-License-Identifier: Apache-2.0
"""The subcommands of `spillway`, one module each."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def wide_console() -> Console:
    """A console for tables on stdout, 160 columns wide if stdout is not a terminal."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else 160)
