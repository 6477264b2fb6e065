# SPDX-License-Identifier: Apache-2.0
"""`python -m bench.device_profile.probe`: measures the GPU's kernels, and prints a line of JSON.

`spillway bench copy` measures the link. Nothing else may run on the GPU. Sizes are such that what a launch
costs hardly counts.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import torch

from bench.device_profile.link import line

MIB = 1 << 20
SIDE = 8192  # of the matrices that are multiplied
ATTENTION = (4, 16, 4096, 128)  # batch, heads, length, width
SMALL, LONG = 500, 10  # kernels, and products that take longer than it takes to launch these


def seconds(operation: Callable[[], object], repeats: int = 9) -> float:
    """The median by events, after two runs that warm up."""
    found = []
    for attempt in range(repeats + 2):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        operation()
        end.record()
        end.synchronize()
        if attempt >= 2:
            found.append(start.elapsed_time(end) / 1e3)
    return sorted(found)[repeats // 2]


def smallest_kernels() -> dict[str, float]:
    """Seconds that an operator on one number costs the host, which the device waits for, and the device,
    where the host is ahead of it."""
    number = torch.zeros(1, device="cuda")
    a = torch.empty(SIDE, SIDE, dtype=torch.bfloat16, device="cuda").normal_()

    def small() -> None:
        for _ in range(SMALL):
            number.add_(1)

    def long() -> None:
        for _ in range(LONG):
            a @ a

    kernel = (seconds(lambda: (long(), small())) - seconds(long)) / SMALL
    return {"launch": seconds(small) / SMALL, "kernel": max(1e-9, kernel)}


def memory_rate() -> float:
    """Bytes that a plain kernel reads and writes in a second."""
    numbers = torch.empty(512 * MIB // 4, dtype=torch.float32, device="cuda")

    def time(size: int) -> float:
        return seconds(lambda: numbers[: size // 8].add_(1))

    return line({size: time(size) for size in (64 * MIB, 1024 * MIB)})["rate"]


def product(dtype: torch.dtype, side: int = SIDE, tf32: bool = False) -> float:
    """Operations a second."""
    torch.backends.cuda.matmul.allow_tf32 = tf32
    a = torch.empty(side, side, dtype=dtype, device="cuda").normal_()
    found = 2 * side**3 / seconds(lambda: a @ a)
    torch.backends.cuda.matmul.allow_tf32 = False
    return found


def attention() -> dict[str, float]:
    """Operations a second, counted as PyTorch's formulas count them."""
    batch, heads, length, width = ATTENTION
    operations = 4 * batch * heads * length**2 * width
    query, key, value = (
        torch.empty(ATTENTION, dtype=torch.bfloat16, device="cuda").normal_().requires_grad_()
        for _ in range(3)
    )
    attend = torch.nn.functional.scaled_dot_product_attention
    with torch.no_grad():
        forward = seconds(lambda: attend(query, key, value))
    out = attend(query, key, value)
    gradient = torch.empty_like(out)
    backward = seconds(lambda: torch.autograd.grad(out, (query, key, value), gradient, retain_graph=True))
    return {"attention": operations / forward, "attention_backward": 2.5 * operations / backward}


def measure() -> dict[str, object]:
    free, total = torch.cuda.mem_get_info()
    taken = total - free - torch.cuda.memory_reserved()  # first: libraries load their kernels below
    properties = torch.cuda.get_device_properties(0)
    return {
        "name": properties.name,
        "torch": torch.__version__,
        "memory": total,
        "cuda_context": taken,
        "capability": f"{properties.major}.{properties.minor}",
        "multiprocessors": properties.multi_processor_count,
        **attention(),
        "half": product(torch.bfloat16),
        "tf32": product(torch.float32, tf32=True),
        "single": product(torch.float32),
        "double": product(torch.float64, SIDE // 2),
        "memory_rate": memory_rate(),
        **smallest_kernels(),
    }


if __name__ == "__main__":
    print("measured: " + json.dumps(measure()), flush=True)
