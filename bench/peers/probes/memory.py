# SPDX-License-Identifier: Apache-2.0
"""Device memory and copied bytes of a training step of three models, by system.

Takes the allocator, `spillway` or `torch`; other systems run over PyTorch's. All bytes are what the
emulated GPU and the allocator's statistics report, over what was there before the step; the first step does
not count.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import spillway
import torch
from torch import nn

from bench.peers import systems
from bench.peers.counters import bytes_copied
from bench.peers.models import MODELS

torch.set_num_threads(1)
if sys.argv[1] == "spillway":
    spillway.use_allocator()

Manager = Callable[[nn.Module], AbstractContextManager]


def variants() -> dict[str, Manager]:
    found: dict[str, Manager] = {
        "plain": lambda model: nullcontext(),
        "Spillway, get_act_offloading_ctx_manager": spillway.compat.get_act_offloading_ctx_manager,
        "Spillway, CPUOffload(1)": lambda model: spillway.CPUOffload(1.0, tag="all"),
        "Spillway, CPUOffload(1), no headroom": lambda model: spillway.CPUOffload(
            1.0, tag="on demand", prefetch_headroom=0
        ),
    }
    if sys.argv[1] == "torch":
        torchtune, trl = systems.torchtune().module, systems.trl().module
        if torchtune is not None:
            found["torchtune"] = lambda model: torchtune.get_act_offloading_ctx_manager(model, True)
        if trl is not None:
            found["TRL"] = trl.get_act_offloading_ctx_manager
    return found


def settled() -> int:
    """Bytes on the device once everything that was queued is done and nothing waits for a copy."""
    torch.cuda.synchronize()
    spillway.step()
    return torch.cuda.memory_allocated()


def measure(build: Callable[[], tuple[nn.Module, torch.Tensor]], manager: Manager) -> dict[str, Any]:
    model, batch = build()
    region = manager(model)
    found: dict[str, Any] = {}
    for step in ("warm", "whole", "halted"):  # the last one looks at memory after its forward pass
        model.zero_grad()
        gc.collect()
        before = settled()
        torch.cuda.reset_peak_memory_stats()
        come, gone = bytes_copied()
        with region:
            loss = model(batch).float().square().mean()
        if step == "halted":
            found["after_forward"] = settled() - before
        loss.backward()
        back, out = bytes_copied()
        if step == "whole":
            found["peak"] = torch.cuda.max_memory_allocated() - before
            found["out"], found["back"] = out - gone, back - come
            found["bits"] = [bits(loss), *(bits(p.grad) for p in model.parameters() if p.grad is not None)]
        del loss
    return found


def bits(tensor: torch.Tensor) -> str:
    return tensor.detach().cpu().contiguous().numpy().tobytes().hex()


def beside_plain(build: Callable[[], tuple[nn.Module, torch.Tensor]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    plain_bits: list[str] = []
    for name, manager in variants().items():
        try:
            one = measure(build, manager)
        except Exception as error:  # another system's: the others are still of interest
            found[name] = {"failed": f"{type(error).__name__}: {error}".splitlines()[0]}
            continue
        seen = one.pop("bits")
        plain_bits = plain_bits or seen
        plain = found.get("plain", one)
        found[name] = {
            **one,
            "equal": seen == plain_bits,
            "offloaded": plain["after_forward"] - one["after_forward"],
        }
    return found


systems.report({name: beside_plain(build) for name, build in MODELS.items()})
