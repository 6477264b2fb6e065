# SPDX-License-Identifier: Apache-2.0
"""Checks a machine for what Spillway needs, and for what conflicts with it. Changes nothing; of CUDA it only
queries the driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from spillway.doctor import environment, gpu, host, software
from spillway.doctor.finding import Finding

CHECKS: tuple[Callable[[], Iterator[Finding]], ...] = (
    software.python,
    software.torch,
    software.libraries,
    gpu.driver,
    gpu.devices,
    host.memory,
    host.locked_memory,
    host.numa,
    host.shared_memory,
    environment.settings,
    environment.interposers,
    environment.profilers,
    environment.pytorch,
)


def examine() -> list[Finding]:
    return [finding for check in CHECKS for finding in check()]
