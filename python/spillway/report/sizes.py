# SPDX-License-Identifier: Apache-2.0
"""Sizes, times and shares as people read them."""

from __future__ import annotations

__all__ = ["count", "percent", "rate", "size", "span"]


def size(count: float) -> str:
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.2f} TiB"


def span(nanoseconds: float) -> str:
    value = float(nanoseconds)
    for unit in ("ns", "µs", "ms"):
        if abs(value) < 1000:
            return f"{value:.0f} ns" if unit == "ns" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.2f} s" if value < 600 else f"{value / 60:.1f} min"


def percent(share: float | None) -> str:
    return "none" if share is None else f"{100 * share:.1f} %"


def rate(count: int, nanoseconds: int) -> str:
    """Bytes by time, in decimal units, as links are sold."""
    return "–" if nanoseconds <= 0 else f"{count / nanoseconds:.2f} GB/s"


def count(number: int, one: str) -> str:
    """ "1 step", "2 steps"."""
    return f"{number} {one}" if number == 1 else f"{number} {one}s"
