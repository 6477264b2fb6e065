# SPDX-License-Identifier: Apache-2.0
"""Replays a trace over one allocator: `python -m bench.fragmentation.replay ALLOCATOR FILE SCALE`.

Only allocations and frees are remade, through the function by which PyTorch allocates raw memory: the same
one for all allocators. Every size is multiplied by SCALE. ALLOCATOR `replayed` is Spillway's with the
whole trace as a step that repeats: it is measured when it has its plan.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import spillway
import torch
from spillway.trace import Trace


def replay(trace: Trace, scale: int) -> dict[str, Any]:
    streams: dict[int, torch.cuda.Stream] = {0: torch.cuda.current_stream()}
    at: dict[int, int] = {}
    sizes: dict[int, int] = {}
    allocated = peak = 0
    torch.cuda.reset_peak_memory_stats()
    for kind, _, block, size, _, stream, _ in trace.events:
        if kind == "allocate":
            if stream not in streams:
                streams[stream] = torch.cuda.Stream()
            sizes[block] = size * scale
            allocated += sizes[block]
            peak = max(peak, allocated)
            at[block] = torch.cuda.caching_allocator_alloc(sizes[block], stream=streams[stream])
        elif kind == "free":
            allocated -= sizes.pop(block)
            torch.cuda.caching_allocator_delete(at.pop(block))
    reserved = torch.cuda.max_memory_reserved()
    for address in at.values():
        torch.cuda.caching_allocator_delete(address)
    return {"allocated_peak_bytes": peak, "reserved_peak_bytes": reserved, "events": len(trace.events)}


if __name__ == "__main__":
    if sys.argv[1] in ("spillway", "replayed"):
        spillway.use_allocator()
    torch.cuda.init()
    recorded = spillway.memory.read_trace(sys.argv[2])
    if not recorded.complete:
        raise ValueError(f"{sys.argv[2]}: the trace is not complete")
    for _ in range(2 if sys.argv[1] == "replayed" else 0):
        replay(recorded, int(sys.argv[3]))
        spillway.step()
    print(json.dumps(replay(recorded, int(sys.argv[3]))))
