# SPDX-License-Identifier: Apache-2.0
"""Milliseconds that a large tensor takes to the host: in parts by Spillway, and as PyTorch's one copy.

On the emulated GPU by the virtual clock.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable

ELEMENTS = (256 << 20) // 4


def run() -> dict[str, float]:
    import spillway
    import torch

    torch.set_num_threads(1)
    factor = torch.ones(ELEMENTS, device="cuda", requires_grad=True)
    pinned = torch.empty(ELEMENTS, pin_memory=True)

    def timed(copy: Callable[[], None]) -> float:
        times = []
        for _ in range(3):
            torch.cuda.synchronize()
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            copy()
            torch.cuda.synchronize()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end))
        return min(times)

    def by_spillway() -> None:
        with spillway.CPUOffload(1.0, tag="parts"):
            value = (factor * 2).sigmoid()
        del value

    def by_torch() -> None:
        value = (factor * 2).sigmoid()
        pinned.copy_(value, non_blocking=True)
        torch.cuda.synchronize()

    return {"parts": timed(by_spillway), "one": timed(by_torch)}


def main() -> dict[str, float]:
    from spillway import launch

    if os.environ.get("SPILLWAY_EMULATE") != "1" or os.environ.get("SPILLWAY_EMULATE_CLOCK") == "virtual":
        return run()
    base = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    environment = launch.environment(True, base=base, clock="virtual")
    return json.loads(
        subprocess.run([sys.executable, __file__], env=environment, stdout=-1, check=True).stdout
    )


print(json.dumps(main()))
