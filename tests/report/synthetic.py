# SPDX-License-Identifier: Apache-2.0
"""Logs that no job has written, of which everything is known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ABOUT: dict[str, Any] = {
    "spillway_run_log": 2,
    "spillway": "0.1.0",
    "torch": "2.11.0",
    "process": 7,
    "process_start": 1,
    "rank": None,
    "started": 0.0,
    "command": ["python", "train.py"],
    "emulated": True,
    "clock": "virtual",
    "devices": [{"name": "a GPU", "bytes": 1 << 30}],
    "allocator": "spillway",
    "page": None,
}

DEVICE = {"allocated": 0, "allocated_peak": 4000, "pinned_peak": 4096, "refused": {"limit": 2, "driver": 0}}
STATE = {"devices": {"0": DEVICE}}

COMPUTE, OUT, IN = 1, 2, 3

# Block 1 (4000 bytes) is offloaded and freed. The sum with offloaded bytes peaks at the allocation of block 2
# (3000 bytes).
LINES: list[list[Any]] = [
    ["tag", 5, "job"],
    ["tag", 6, "activation/layers.0"],
    ["new", 100, 1, 4000, 6, 0],
    ["mark", 100, 1000, 1000, 0, COMPUTE, 0, 0, 0],
    ["offload", 110, 9, 1, 4000, 4000, 5, 6],
    ["from", 9, "relu", "/jobs/train.py:12 forward"],
    ["free", 120, 1],
    ["new", 130, 2, 3000, 0, 0],
    ["free", 140, 2],
    ["new", 150, 3, 4000, 5, 0],
    ["fetch", 151, 9, 3],
    ["free", 160, 3],
    ["end", 161, 9],
    ["mark", 200, 9000, 9000, 0, COMPUTE, 0, 0, 0],
    ["out", 111, 1000, 3000, 0, OUT, 4000, 5, 9],
    ["in", 152, 4000, 6000, 0, IN, 4000, 5, 9],
    ["wait", 153, 5000, 6000, 0, COMPUTE, IN, 5, 9],
    ["tagstep", 199, 0, 5, {"offloadable": 7000, "offloaded": 4000, "copied": 4000, "fetched": 4000,
                            "skipped": {"tiny": {"storages": 2, "bytes": 20}}}],
    ["step", 200, 1, STATE],
]  # fmt: skip


# Two calls of one operator, the second in the backward pass of another tag.
OPERATORS: list[list[Any]] = [
    ["name", 1, "aten::mul"],
    ["name", 2, "MulBackward0"],
    ["name", 3, "elementwise_kernel"],
    ["op", 105, 1000, 2500, 0, COMPUTE, 1, 6, 0],
    ["op", 107, 2500, 3000, 0, COMPUTE, 1, 5, 0],
    ["op", 155, 6000, 9000, 0, COMPUTE, 2, 5, 0],
    ["launch", 156, 6500, 8500, 0, COMPUTE, 3, 0, 0],
]
OPERATORS_OF_A_RUN = [*LINES, *OPERATORS]


def write(path: Path, lines: list[list[Any]] = LINES, done: bool = True, **about: Any) -> Path:
    path.parent.mkdir(exist_ok=True)
    text = [json.dumps(ABOUT | about)] + [json.dumps(line) for line in lines]
    if done:
        text.append(json.dumps(["done", 300]))
    path.write_text("\n".join(text) + "\n")
    return path
