# SPDX-License-Identifier: Apache-2.0
"""Time of torch.empty and its free on a cached size, over the allocator that the argument names."""

from __future__ import annotations

import json
import sys
import time
import timeit

import torch

if sys.argv[1] == "spillway":
    import spillway

    spillway.use_allocator()


def allocate() -> None:
    torch.empty(1 << 20, device="cuda")


allocate()
timer = timeit.Timer(allocate, timer=time.process_time)
number = 2000
print(json.dumps({"ns": min(timer.repeat(30, number)) / number * 1e9}))
