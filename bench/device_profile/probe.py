# SPDX-License-Identifier: Apache-2.0
"""`python -m bench.device_profile.probe`: measures the GPU that is here, and prints a line of JSON.

Nothing else may run on the GPU. Sizes are such that what a launch costs hardly counts.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import torch

MIB = 1 << 20
SIDE = 8192  # of the matrices that are multiplied
COPIES = 8  # one after another
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


def line(operation: Callable[[int], Callable[[], object]], small: int, large: int) -> dict[str, float]:
    """Seconds by bytes, as latency + bytes / rate, through the times of two sizes."""
    first, second = seconds(operation(small)), seconds(operation(large))
    if second <= first:
        raise SystemExit(f"{large} bytes took no longer than {small}: is something else running on this GPU?")
    rate = (large - small) / (second - first)
    return {"latency": max(0.0, first - small / rate), "rate": rate}


def copies(to_device: bool) -> dict[str, float]:
    there = torch.empty(512 * MIB, dtype=torch.uint8, device="cuda")
    here = torch.empty(512 * MIB, dtype=torch.uint8, pin_memory=True)
    into, out_of = (there, here) if to_device else (here, there)

    def several(size: int) -> Callable[[], object]:  # the host is ahead of them
        return lambda: [into[:size].copy_(out_of[:size], non_blocking=True) for _ in range(COPIES)]

    found = line(several, MIB, 512 * MIB)
    return {"latency": found["latency"] / COPIES, "rate": found["rate"] * COPIES}


def both_ways(rates: tuple[float, float]) -> float:
    """Of the rates alone, the share that copies both ways at once reach."""
    size = 512 * MIB
    there = [torch.empty(size, dtype=torch.uint8, device="cuda") for _ in rates]
    here = [torch.empty(size, dtype=torch.uint8, pin_memory=True) for _ in rates]
    side = torch.cuda.Stream()

    def copy() -> None:
        side.wait_stream(torch.cuda.current_stream())
        for _ in range(COPIES):
            there[0].copy_(here[0], non_blocking=True)
            with torch.cuda.stream(side):
                here[1].copy_(there[1], non_blocking=True)
        torch.cuda.current_stream().wait_stream(side)

    alone = max(size / rate for rate in rates)
    return min(1.0, COPIES * alone / seconds(copy))


def pageable_rate() -> float:
    """Bytes a second of copies to and from memory that is not registered, the slower way."""
    there = torch.empty(128 * MIB, dtype=torch.uint8, device="cuda")
    here = torch.empty(128 * MIB, dtype=torch.uint8)
    ways = (
        lambda size: lambda: there[:size].copy_(here[:size]),
        lambda size: lambda: here[:size].copy_(there[:size]),
    )
    return min(line(way, 16 * MIB, 128 * MIB)["rate"] for way in ways)


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
    return line(lambda size: lambda: numbers[: size // 8].add_(1), 64 * MIB, 1024 * MIB)["rate"]


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
    found: dict[str, object] = {
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
        "pageable": pageable_rate(),
        **smallest_kernels(),
    }
    h2d, d2h = copies(to_device=True), copies(to_device=False)
    return {**found, "h2d": h2d, "d2h": d2h, "duplex": both_ways((h2d["rate"], d2h["rate"]))}


if __name__ == "__main__":
    print("measured: " + json.dumps(measure()), flush=True)
