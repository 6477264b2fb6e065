# SPDX-License-Identifier: Apache-2.0
"""Pinned bytes after a few steps, beside the peak of the bytes in slots; sizes by the argument.

just_over: tensors a little larger than powers of two, of which an allocator that rounds up would waste half.
equal: all of one such size. varying: any.
"""

from __future__ import annotations

import json
import random
import sys

import spillway
import torch

SIZES = {
    "just_over": [(1 << power) // 4 + 1 for power in range(14, 23)] * 2,
    "equal": [(1 << 20) // 4 + 1] * 24,
    "varying": [random.Random(5).randrange(1000, 500000) for _ in range(30)],
}[sys.argv[1]]

torch.set_num_threads(1)
spillway.use_allocator()
for _ in range(4):
    with spillway.CPUOffload(1.0, tag="sizes"):
        total = sum(
            torch.ones(size, device="cuda", requires_grad=True).mul(2).sigmoid().sum() for size in SIZES
        )
    total.backward()
host = spillway.stats()["devices"][0]["host"]
print(json.dumps({"pinned": host["pinned_bytes"], "slots": host["in_slots_peak_bytes"]}))
