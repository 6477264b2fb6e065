# SPDX-License-Identifier: Apache-2.0
"""What every program here prints: its last step by CUDA's events and PyTorch's statistics, a line of JSON."""

from __future__ import annotations

import json
import os
import resource
import time
from collections.abc import Callable

import torch


def measured(step: Callable[[], None], tokens: int, steps: int = 3) -> None:
    """Runs the step some times; the last one counts, and the peaks are those since the first."""
    torch.cuda.reset_peak_memory_stats()
    for _ in range(steps):
        began = time.monotonic()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        step()
        end.record()
        end.synchronize()
    statistics = torch.cuda.memory_stats()
    milliseconds = start.elapsed_time(end)
    found = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "step_ms": round(milliseconds, 2),
        "tokens_per_second": round(tokens / milliseconds * 1e3),
        "peak_bytes": statistics["active_bytes.all.peak"],
        "peak_allocated_bytes": statistics["allocated_bytes.all.peak"],
        "peak_reserved_bytes": statistics["reserved_bytes.all.peak"],
        "wall_seconds": round(time.monotonic() - began, 2),
        "host_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
    print("measured: " + json.dumps(found), flush=True)
    # What other systems have given autograd to call is freed on autograd's thread, and now and then that
    # aborts a process which ends by itself.
    os._exit(0)
