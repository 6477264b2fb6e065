# SPDX-License-Identifier: Apache-2.0
"""The same training steps under three ways to keep a tensor's memory until its copy out has read it.

fences: Spillway's heap; the freed block carries the copy's fence. held: PyTorch's allocator; Spillway holds
the tensor until the copy has passed. record_stream: PyTorch's allocator, pack hooks as scripts have them, and
`Tensor.record_stream`. plain: nothing moves. On the emulated GPU times are those of the virtual clock, at a
link on which the copies of a forward pass take longer than the host needs to issue it, so that it runs ahead.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import subprocess
import sys
from contextlib import AbstractContextManager

VARIANTS = ("plain", "fences", "held", "record_stream")
OPERATIONS = 100
ELEMENTS = 1 << 18
WARM_UP, STEPS = 3, 3


def host_syncs() -> int:
    """How often the host has waited for the device so far: by whomever on the emulated GPU, else Spillway."""
    try:
        count = ctypes.CDLL(None).spillway_emulator_count
    except AttributeError:
        import spillway

        return spillway.stats()["driver"]["host_syncs"]
    count.restype = ctypes.c_uint64
    return count(b"host_syncs")


def recording_streams() -> AbstractContextManager:
    """Saved tensors go out and are fetched on a stream of their own, each with record_stream."""
    import torch

    side = torch.cuda.Stream()
    spare = [torch.empty(ELEMENTS, pin_memory=True) for _ in range(OPERATIONS)]

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.is_leaf:
            return tensor
        buffer = spare.pop()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            buffer.copy_(tensor, non_blocking=True)
        tensor.record_stream(side)
        return buffer

    def unpack(saved: torch.Tensor) -> torch.Tensor:
        if saved.is_cuda:
            return saved
        with torch.cuda.stream(side):
            back = saved.to("cuda", non_blocking=True)
        torch.cuda.current_stream().wait_stream(side)
        back.record_stream(torch.cuda.current_stream())
        spare.append(saved)  # its next writer is on the same stream
        return back

    return torch.autograd.graph.saved_tensors_hooks(pack, unpack)


def run(variant: str) -> dict[str, float]:
    import spillway
    import torch

    torch.set_num_threads(1)
    if variant == "fences":
        spillway.use_allocator()
    leaf = torch.ones(ELEMENTS, device="cuda", requires_grad=True)
    ones = torch.ones(ELEMENTS, device="cuda")
    recording = recording_streams() if variant == "record_stream" else None

    def region() -> AbstractContextManager:
        if variant == "plain":
            return contextlib.nullcontext()
        return recording or spillway.CPUOffload(1.0, tag="fences")

    def step() -> tuple[torch.cuda.Event, ...]:
        marks = tuple(torch.cuda.Event(enable_timing=True) for _ in range(3))
        marks[0].record()
        with region():
            value = leaf
            for _ in range(OPERATIONS):
                value = value.sin()
        marks[1].record()
        value.backward(ones)
        leaf.grad = None
        marks[2].record()
        return marks

    for _ in range(WARM_UP):
        step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = host_syncs()
    all_marks = [step() for _ in range(STEPS)]
    after = host_syncs()
    torch.cuda.synchronize()
    return {
        "forward_ms": sum(first.elapsed_time(second) for first, second, _ in all_marks) / STEPS,
        "step_ms": sum(first.elapsed_time(last) for first, _, last in all_marks) / STEPS,
        "peak_bytes": torch.cuda.max_memory_reserved(),
        "host_syncs": after - before,
    }


def all_variants() -> dict[str, dict]:
    from spillway import launch

    environment = dict(os.environ)
    if environment.get("SPILLWAY_EMULATE") == "1":
        clock = {"clock": "virtual", "link_h2d": "25GiB", "link_d2h": "25GiB", "latency": "1us"}
        environment = launch.environment(True, base=without_preload(environment), **clock)
    return {
        variant: json.loads(
            subprocess.run([sys.executable, __file__, variant], env=environment, stdout=-1, check=True).stdout
        )
        for variant in VARIANTS
    }


def without_preload(environment: dict[str, str]) -> dict[str, str]:
    """Without what this process was started with: the variants get it again."""
    return {name: value for name, value in environment.items() if name != "LD_PRELOAD"}


print(json.dumps(run(sys.argv[1]) if len(sys.argv) > 1 else all_variants()))
