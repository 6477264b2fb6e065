# SPDX-License-Identifier: Apache-2.0
"""Puts what the host did on the device's time."""

from __future__ import annotations

from bisect import bisect_right

from spillway.report.log import RunLog, Span

__all__ = ["Clock", "copy_streams"]


def copy_streams(spans: list[Span]) -> set[tuple[int, int]]:
    """Device and handle of the streams that only copy."""
    return {(span.device, span.stream) for span in spans if span.kind in ("out", "in")}


class Clock:
    """The host runs ahead of the device: what it submitted at some moment happens later there. Places that
    were marked on the computing streams are known in both times; what lies between two is put between them.
    Before the first and after the last one time passes as on the host, but for at most a twentieth of what
    lies between: a modeled clock does not run beside the host's.
    """

    def __init__(self, log: RunLog) -> None:
        copying = copy_streams(log.spans)
        marks = sorted(
            (span.submitted, span.begin)
            for span in log.spans
            if (span.device, span.stream) not in copying and span.kind in ("mark", "wait")
        )
        self.host: list[int] = []
        self.device: list[int] = []
        for host, device in marks:
            if self.host and host == self.host[-1]:
                continue
            self.host.append(host)
            self.device.append(max(device, self.device[-1]) if self.device else device)
        if not self.host:
            self.host, self.device = [0], [0]
        span = (self.device[-1] - self.device[0]) or max(log.ended, 1)
        self._most = max(span // 20, 1) if len(self.host) > 1 else span
        before = self.host[0]
        self._before = min(1.0, self._most / before) if before else 1.0

    def at(self, host: int) -> int:
        """The device's time, nanoseconds, for a moment of the host's."""
        index = bisect_right(self.host, host)
        if index == 0:
            return self.device[0] - round((self.host[0] - host) * self._before)
        if index == len(self.host):
            return self.device[-1] + min(host - self.host[-1], self._most)
        earlier, later = self.host[index - 1], self.host[index]
        begin, end = self.device[index - 1], self.device[index]
        return begin + (end - begin) * (host - earlier) // (later - earlier)
