# SPDX-License-Identifier: Apache-2.0
"""Replays a trace over one allocator: `python -m bench.fragmentation.replay ALLOCATOR FILE SCALE`.

Only allocations and frees are made again, through the door by which PyTorch gives raw memory away: the same
one for all allocators. Every size is multiplied by SCALE.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import spillway
import torch


def replay(path: str, scale: int) -> dict[str, Any]:
    trace = spillway.read_trace(path)
    if not trace.complete:
        raise ValueError(f"{path}: the trace is not complete")
    streams: dict[int, torch.cuda.Stream] = {0: torch.cuda.current_stream()}
    at: dict[int, int] = {}
    sizes: dict[int, int] = {}
    live = peak = 0
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    for kind, _, block, size, _, stream, _ in trace.events:
        if kind == "allocate":
            if stream not in streams:
                streams[stream] = torch.cuda.Stream()
            sizes[block] = size * scale
            live += sizes[block]
            peak = max(peak, live)
            at[block] = torch.cuda.caching_allocator_alloc(sizes[block], stream=streams[stream])
        elif kind == "free":
            live -= sizes.pop(block)
            torch.cuda.caching_allocator_delete(at.pop(block))
    held = torch.cuda.max_memory_reserved()
    for address in at.values():
        torch.cuda.caching_allocator_delete(address)
    return {"live_peak_bytes": peak, "held_peak_bytes": held, "events": len(trace.events)}


if __name__ == "__main__":
    if sys.argv[1] == "spillway":
        spillway.use_allocator()
    torch.cuda.init()
    print(json.dumps(replay(sys.argv[2], int(sys.argv[3]))))
