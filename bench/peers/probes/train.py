# SPDX-License-Identifier: Apache-2.0
"""One system trains the model: `train.py WAY small|full STEPS [clip] [accumulate] [schedule] [own]`.

Prints JSON: per step the loss, the peak memory and the milliseconds, a digest of the final parameters, and
what was raised instead, with its last line of the program that called the system.
"""

from __future__ import annotations

import hashlib
import sys
import time
import warnings
from contextlib import nullcontext
from typing import Any

import torch

from bench.peers import systems
from bench.peers.host import HostShapes
from bench.peers.llama import FULL, SMALL, Size, llama
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
    losses = []
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(steps):
        torch.cuda.reset_peak_memory_stats()
        began = time.perf_counter()
        begin.record()
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
        end.record()
        torch.cuda.synchronize()
        found["steps"].append(
            {
                "ms": round(begin.elapsed_time(end), 2),
                "host_ms": round((time.perf_counter() - began) * 1e3, 2),
                "peak": torch.cuda.max_memory_allocated(),
                "reserved": torch.cuda.max_memory_reserved(),
            }
        )
    found["losses"] = bits(losses)
    found["values"] = [float(loss) for loss in losses]


def main(way: str, scale: str, steps: str, *options: str) -> None:
    size = {"small": SMALL, "full": FULL}[scale]
    asked = Asked(
        clip="clip" in options,
        micro_batches=MICRO_BATCHES if "accumulate" in options else 1,
        schedule="schedule" in options,
        own="own" in options,
    )
    found: dict[str, Any] = {"steps": []}
    with HostShapes() if scale == "full" else nullcontext(), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            trainer = TRAINERS[way](llama(size), asked)
            train(trainer, size, asked, int(steps), found)
            if scale == "small":
                found["parameters"] = bits(trainer.finals())
        except Exception as error:  # a system's: it is the finding
            import traceback

            if "-v" in options:
                traceback.print_exc()
            found["failed"] = f"{type(error).__name__}: {error}"[:600]
    found["warnings"] = sorted({f"{each.category.__name__}: {each.message}"[:300] for each in said})
    systems.report(found)


if __name__ == "__main__":
    main(*sys.argv[1:])
