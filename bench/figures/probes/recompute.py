# SPDX-License-Identifier: Apache-2.0
"""One training step of the blocks of a full-size model: `recompute.py NAME plain|recompute`, in a dry run.

Prints as JSON what the blocks' graph keeps for the backward pass, the peak, and the predicted time. Blocks
alone, in bfloat16, without an embedding; one of the models has the head that follows them.
"""

from __future__ import annotations

import json
import sys

import spillway
import torch
from full_size import Head, LlamaBlock, TransformerBlock, UnetBlock, resnet50
from torch import nn

#: The blocks, and what they are given.
MODELS = {
    "llama": (lambda: [LlamaBlock() for _ in range(8)], (4, 4096, 4096)),
    "llama-with-head": (lambda: [*(LlamaBlock() for _ in range(8)), Head()], (4, 4096, 4096)),
    "gpt2-xl": (lambda: [TransformerBlock(1600, 25, 0.1, True) for _ in range(12)], (8, 1024, 1600)),
    "vit": (lambda: [TransformerBlock(1024, 16, 0.0, False) for _ in range(12)], (64, 197, 1024)),
    "resnet50": (resnet50, (64, 64, 56, 56)),
    "unet": (lambda: [UnetBlock(320) for _ in range(4)], (8, 320, 64, 64)),
}


def main(name: str, way: str) -> None:
    make, shape = MODELS[name]
    with torch.device("cuda"):
        net = nn.Sequential(*make()).to(torch.bfloat16)
        x = torch.zeros(shape, dtype=torch.bfloat16, requires_grad=True)
    optimizer = torch.optim.AdamW(net.parameters(), fused=True)
    # A ratio of 0 keeps everything, and counts each storage once.
    regions = {"plain": lambda: spillway.CPUOffload(0, tag="plain"), "recompute": spillway.recompute}
    for _ in range(3):
        torch.cuda.reset_peak_memory_stats()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        with regions[way]():
            loss = net(x).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        end.record()
        torch.cuda.synchronize()
    last = spillway.stats()["tags"][way]["last"]
    print(
        json.dumps(
            {
                "kept": last["offloadable_bytes"],
                "left_to_recompute": last["left_to_recompute_bytes"],
                "recomputed": last["recomputed_bytes"],
                "peak": torch.cuda.max_memory_allocated(),
                "ms": begin.elapsed_time(end),
            }
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
