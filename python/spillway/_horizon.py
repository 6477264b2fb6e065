# SPDX-License-Identifier: Apache-2.0
"""How far ahead activations are fetched, found by trying."""

from __future__ import annotations

__all__ = ["Tuner"]

#: The first steps of a trial are not timed: memory settles, and the order is learnt.
SETTLING = 2
TIMED = 3
#: A longer horizon must save this share of the time to be worth its memory.
GAIN = 0.02


class Tuner:
    """Doubles the horizon while steps get faster and there is room for it.

    A step of another number of micro-batches begins the search again. Where the device has no room left for
    one more unit, the horizon shrinks.
    """

    def __init__(self) -> None:
        self._batches = 0
        self._begin()

    def _begin(self) -> None:
        self.horizon = 1
        self._best: float | None = None  # of the horizon that is half as long
        self._found = False
        self._times: list[float] = []

    def observe(self, seconds: float, free_bytes: int, unit_bytes: int, batches: int) -> int:
        """A step has taken `seconds`, has left the device `free_bytes`, and had `batches` micro-batches whose
        largest unit has `unit_bytes`. Gives the horizon of the next step."""
        if batches != self._batches:
            self._batches = batches
            self._begin()
            return self.horizon
        if self.horizon > 1 and free_bytes < unit_bytes:
            self.horizon = max(1, self.horizon // 2)
            self._found = True
            return self.horizon
        if not self._found:
            self._times.append(seconds)
            if len(self._times) == SETTLING + TIMED:
                self._decide(min(self._times[SETTLING:]), free_bytes >= self.horizon * unit_bytes)
        return self.horizon

    def _decide(self, best: float, room: bool) -> None:
        self._times = []
        if self._best is not None and best > self._best * (1 - GAIN):
            self.horizon //= 2
            self._found = True
        elif room:
            self._best = best
            self.horizon *= 2
        else:
            self._found = True
