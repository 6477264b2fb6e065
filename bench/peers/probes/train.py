# SPDX-License-Identifier: Apache-2.0
"""One system trains the model: `train.py WAY SIZE STEPS [clip] [accumulate] [schedule] [own]
[free] [to=FILE]`.

Prints JSON: peak memory and milliseconds of each step, digests of the losses and of the final parameters,
which FILE gets, and what was raised instead. `own`: by the system's own options. `free`: the host's
arithmetic takes no time.
"""

from __future__ import annotations

import hashlib
import os
import sys
import warnings
from contextlib import nullcontext
from typing import Any

import spillway
import torch

from bench.peers import systems
from bench.peers.host import RATE, HostShapes
from bench.peers.llama import SIZES, Size, llama
from bench.peers.trainers import CLIP, TRAINERS, Asked, Trainer, factor

MICRO_BATCHES = 2


def bits(tensors: Any) -> str:
    found = hashlib.sha256()
    for tensor in tensors:
        found.update(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def train(trainer: Trainer, size: Size, asked: Asked, steps: int, found: dict[str, Any]) -> None:
    generator = torch.Generator().manual_seed(1)
    scheduler = None
    if asked.schedule and "schedule" not in trainer.own:
        scheduler = torch.optim.lr_scheduler.LambdaLR(trainer.optimizer, factor)
    losses, begins = [], []
    for _ in range(steps):
        torch.cuda.reset_peak_memory_stats()
        begins.append(torch.cuda.Event(enable_timing=True))
        begins[-1].record()
        for _ in range(asked.micro_batches):
            words = torch.randint(size.words, (size.batch, size.length), generator=generator).cuda()
            loss = trainer.model(words)
            losses.append(loss.detach().clone())
            share = loss if "accumulate" in trainer.own else loss / asked.micro_batches
            trainer.backward(share)
            del loss, share
            if trainer.each_micro_batch:
                trainer.step()
        if asked.clip and "clip" not in trainer.own:
            torch.nn.utils.clip_grad_norm_(trainer.module.parameters(), CLIP)
        if not trainer.each_micro_batch:
            trainer.step()
        if scheduler:
            scheduler.step()
        trainer.zero_grad()
        memory = {"peak": torch.cuda.max_memory_allocated(), "reserved": torch.cuda.max_memory_reserved()}
        found["steps"].append(memory)
    torch.cuda.synchronize()
    for step, begin, end in zip(found["steps"], begins, begins[1:], strict=False):
        step["ms"] = round(begin.elapsed_time(end), 2)
    found["losses"] = bits(losses)


def main(way: str, scale: str, steps: str, *options: str) -> None:
    size = SIZES[scale]
    to = next((each.removeprefix("to=") for each in options if each.startswith("to=")), os.devnull)
    rate = 0.0 if "free" in options else RATE
    asked = Asked(
        clip="clip" in options,
        micro_batches=MICRO_BATCHES if "accumulate" in options else 1,
        schedule="schedule" in options,
        own="own" in options,
        rate=rate,
    )
    found: dict[str, Any] = {"steps": []}
    on_gpu = way in ("plain", "fused")
    with (
        HostShapes(rate) if scale != "small" and not on_gpu else nullcontext(),
        warnings.catch_warnings(record=True) as said,
    ):
        warnings.simplefilter("always")
        try:
            with torch.device("cuda") if scale != "small" and on_gpu else nullcontext():
                model = llama(size)
            trainer = TRAINERS[way](model, asked)
            train(trainer, size, asked, int(steps), found)
            if scale == "small":
                finals = [each.detach().cpu().clone() for each in trainer.finals()]
                found["parameters"] = bits(finals)
                found["unchanged"] = found["parameters"] == bits(llama(size).parameters())
                torch.save(finals, to)
        except Exception as error:  # a system's: it is the finding
            found["failed"] = f"{type(error).__name__}: {error}"[:600]
    found["fetched"] = spillway.stats().get("model_state", {}).get("fetched_bytes", 0)
    found["warnings"] = sorted({f"{each.category.__name__}: {each.message}"[:300] for each in said})
    systems.report(found)


if __name__ == "__main__":
    main(*sys.argv[1:])
