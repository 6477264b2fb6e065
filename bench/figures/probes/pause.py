# SPDX-License-Identifier: Apache-2.0
"""A pause and a resume of 1000 tensors that hold MIB in all (argument): bytes copied, and the time of each.

On the emulated GPU the times are of its virtual clock, and the link is the configured one. On a GPU the link
is the rate of one large copy of pinned memory in the same run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

from spillway import launch

LINK = 50 << 30  # of the emulated GPU, bytes a second each way
TENSORS = 1000


def measured_links() -> dict[str, float]:
    """Bytes a second, the best of three copies of 1 GiB."""
    import torch

    device = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    host = torch.empty(1 << 30, dtype=torch.uint8, pin_memory=True)

    def seconds(to: torch.Tensor, source: torch.Tensor) -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        to.copy_(source, non_blocking=True)
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1e3

    return {
        "out": device.numel() / min(seconds(host, device) for _ in range(3)),
        "in": device.numel() / min(seconds(device, host) for _ in range(3)),
    }


def measure(mebibytes: int) -> dict[str, float]:
    import torch
    from spillway.memory_saver import torch_memory_saver

    size = (mebibytes << 20) // TENSORS
    with torch_memory_saver.region("probe", enable_cpu_backup=True):
        tensors = [
            torch.full((size,), each % 251, dtype=torch.uint8, device="cuda") for each in range(TENSORS)
        ]

    import spillway

    def timed(move, tag: str) -> tuple[dict[str, int], float]:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        begin.record()
        begin.synchronize()
        report = move(tag)
        end.record()
        end.synchronize()
        return report, begin.elapsed_time(end) / 1e3

    tag = "memory_saver/kept/probe"
    timed(spillway.pause, tag)  # pins the host memory
    timed(spillway.resume, tag)
    paused, pause_seconds = timed(spillway.pause, tag)
    resumed, resume_seconds = timed(spillway.resume, tag)
    intact = all(bool((tensor == each % 251).all()) for each, tensor in enumerate(tensors))
    return {
        "allocated_bytes": size * TENSORS,
        "copied_bytes": paused["copied_bytes"],
        "copied_back_bytes": resumed["copied_bytes"],
        "released_bytes": paused["released_bytes"],
        "pause_seconds": pause_seconds,
        "resume_seconds": resume_seconds,
        "links": {"out": LINK, "in": LINK} if os.environ.get("SPILLWAY_EMULATE") == "1" else measured_links(),
        "intact": intact,
    }


if os.environ.get("SPILLWAY_EMULATE") == "1" and os.environ.get("SPILLWAY_EMULATE_CLOCK") != "virtual":
    settings = launch.environment(True, clock="virtual", memory="12GiB", link_h2d="50GiB", link_d2h="50GiB")
    sys.exit(subprocess.run([sys.executable, *sys.argv], env=settings, check=False).returncode)
print(json.dumps(measure(int(sys.argv[1]))))
