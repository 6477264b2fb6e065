# SPDX-License-Identifier: Apache-2.0
"""Training steps of full-size models under budgets and beside other ways, in a dry run or on a GPU:
`planning.py MODEL[:compiled[=SHARE]] budgets|SHARE…|time=LIMIT…|WAY…`.

Prints JSON on one line, more of it after each of what is asked, the last line being the whole: for plain
PyTorch, for each budget and for each way the peak and the predicted or measured time of a step. A SHARE is
what is to be gone of the bytes that the blocks of the model keep for the backward pass; `budgets` takes
shares from nothing to 1.1 times the least budget. A LIMIT is one of `time_limit=`. The SHARE of a compiled
model is its `activation_memory_budget` under budgets: the compiler recomputes the rest.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from statistics import mean, median
from typing import Any

import spillway
import torch
from full_size import Head, LlamaBlock, TransformerBlock, with_adapters
from torch import nn
from torch._functorch import config as functorch_config
from torch._functorch._activation_offloading import activation_offloading
from torch.utils.checkpoint import checkpoint

LAYERS = ("q", "k", "v", "o", "gate", "up", "down")


def lora(names: tuple[str, ...]) -> list[nn.Module]:
    blocks = [with_adapters(LlamaBlock(), names) for _ in range(32)]
    return [*blocks, Head(32000).requires_grad_(False)]


#: The blocks, and what they are given: the workloads that plans are judged by.
MODELS: dict[str, tuple[Callable[[], list[nn.Module]], tuple[int, ...]]] = {
    "llama-8b-8-layers-32k": (lambda: [*(LlamaBlock() for _ in range(8)), Head(32000)], (1, 32768, 4096)),
    "llama-8b-8-layers": (lambda: [*(LlamaBlock() for _ in range(8)), Head(32000)], (4, 4096, 4096)),
    "llama-70b-8-layers": (
        lambda: [*(LlamaBlock(8192, 28672) for _ in range(8)), Head(32000, 8192)],
        (4, 4096, 8192),
    ),
    "gpt2-xl": (lambda: [TransformerBlock(1600, 25, 0.1, True) for _ in range(48)], (8, 1024, 1600)),
    "lora-8b-qv": (lambda: lora(("q", "v")), (1, 4096, 4096)),
    "lora-8b-all": (lambda: lora(LAYERS), (1, 4096, 4096)),
    "llama-8b": (lambda: [*(LlamaBlock() for _ in range(32)), Head(32000)], (1, 4096, 4096)),
    "vit-l": (lambda: [TransformerBlock(1024, 16, 0.0, False) for _ in range(24)], (64, 197, 1024)),
}
# Steps are made until this many in a row are alike, or this many at most: plans are remade until times and
# memory are settled.
ALIKE = 10
MIB = 2**20
MOST_STEPS = 48
# On a GPU times always differ, and only memory is compared.
COMPARED = ("peak", "reserved", "ms") if "SPILLWAY_EMULATE" in os.environ else ("peak", "reserved")


def settled(found: list[dict[str, Any]]) -> bool:
    last = [[each[name] for name in COMPARED] for each in found[-ALIKE:]]
    return len(last) == ALIKE and last == [last[-1]] * ALIKE


class Step:
    """A training step of the model, in any region; as with a loader, its batch replaces the one
    before it."""

    def __init__(self, model: str, batch: int | None = None) -> None:
        model, _, compiled = model.partition(":")
        make, shape = MODELS[model]
        shape = (batch or shape[0], *shape[1:])
        with torch.device("cuda"):
            self.net = nn.Sequential(*make()).to(torch.bfloat16)
        self.shape = shape
        self.run = torch.compile(self.net) if compiled else self.net
        self.x = self.batch()
        trained = [each for each in self.net.parameters() if each.requires_grad]
        self.optimizer = torch.optim.AdamW(trained, fused=True)

    def batch(self) -> torch.Tensor:
        return torch.randn(self.shape, dtype=torch.bfloat16, device="cuda", requires_grad=True)

    def forward(self) -> torch.Tensor:
        self.x = self.batch()
        return self.run(self.x).sum()

    def kept_by_blocks(self) -> int:
        """Bytes that the blocks keep for the backward pass, each storage once. Excludes what the last norm
        and the loss keep: with any plan these are allocated at the forward-backward boundary. Includes them
        if the model is compiled as a whole."""
        x = self.x
        with spillway.CPUOffload(0, tag="kept"):  # a ratio of 0 keeps everything
            if self.run is self.net:
                for block in self.net:
                    x = x if isinstance(block, Head) else block(x)
            else:
                x = self.run(x)
        x.sum().backward()
        spillway.step()
        self.optimizer.zero_grad()
        return spillway.stats()["tags"]["kept"]["last"]["offloadable_bytes"]

    def checkpointed(self) -> torch.Tensor:
        x = self.x = self.batch()
        for block in self.net:
            x = checkpoint(block, x, use_reentrant=False)
        return x.sum()

    def measured(self, region: Any, forward: Callable[[], torch.Tensor] | None = None) -> dict[str, Any]:
        """Peak bytes, reserved bytes and milliseconds of the last step, once several in a row were alike; if
        none were, the median and the mean of the milliseconds. Also the most bytes that any step after the
        first reserved."""
        torch.cuda.empty_cache()  # as in a process that has run nothing else
        found: list[dict[str, Any]] = []
        while len(found) < MOST_STEPS and not settled(found):
            torch.cuda.reset_peak_memory_stats()
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            with region:
                loss = (forward or self.forward)()
            loss.backward()
            del loss
            self.optimizer.step()
            self.optimizer.zero_grad()
            end.record()
            torch.cuda.synchronize()
            found.append(
                {
                    "peak": torch.cuda.max_memory_allocated(),
                    "reserved": torch.cuda.max_memory_reserved(),
                    "ms": round(begin.elapsed_time(end), 2),
                }
            )
        most = max(each["reserved"] for each in found[1:])
        measured: dict[str, Any] = {**found[-1], "reserved_from_second": most, "steps": len(found)}
        if not settled(found):
            measured["ms"] = round(mean(each["ms"] for each in found[-ALIKE:]), 2)
        if "ms" not in COMPARED:
            measured["ms_of_steps"] = [each["ms"] for each in found]
            measured["ms"] = round(median(each["ms"] for each in found[-ALIKE:]), 2)
        return measured


def under(step: Step, budget: int, tag: str) -> dict[str, Any]:
    region = spillway.offload(budget=budget, tag=tag)
    found = {"budget": budget, **step.measured(region)}
    explained = spillway.explain(tag)
    if explained is not None:
        found |= {
            "of_limit": explained.optimality,
            "predicted_of_limit": explained.chosen.optimality,
            "limit": explained.chosen.limit,
            "least": explained.curve[0].budget,
            "kept": explained.chosen.kept,
            "offloaded": explained.chosen.offloaded,
            "recomputed": explained.chosen.recomputed,
            "predicted": explained.chosen.seconds,
            "taken": explained.taken,
        }
    return found


def within(step: Step, budget: int, tag: str) -> dict[str, Any]:
    """Within the smallest budget where this one cannot be met. All tries are in one process: each may leave
    some pages of its heap stranded, which the next one lacks."""
    for _ in range(8):
        try:
            return under(step, budget, f"{tag}-{budget}")
        except spillway.BudgetError as error:  # the first one's is a lower bound
            budget = error.smallest
            spillway.step()
            step.optimizer.zero_grad()
    raise RuntimeError(f"no budget is met, not even {budget} bytes")


def compiled_with(step: Step, **settings: Any) -> dict[str, Any]:
    """What the compiler itself does to a compiled model."""
    torch.compiler.reset()
    try:
        with functorch_config.patch(**settings):
            return step.measured(contextlib.nullcontext())
    finally:
        torch.compiler.reset()


def mark_all(forward: Any, *_: Any) -> None:
    """For PyTorch's own offloading in graphs."""
    for node in forward.graph.nodes:
        node.meta["should_offload"] = True


def the_way(name: str, step: Step) -> dict[str, Any]:
    """One of: checkpoint, save_on_cpu, trl, torchtune, of which the last two need those packages; for
    compiled models memory_budget=SHARE and graph_offload, which are the compiler's."""
    if name.startswith("memory_budget="):
        share = float(name.removeprefix("memory_budget="))
        return compiled_with(step, activation_memory_budget=share, enable_activation_offloading=False)
    if name == "graph_offload":
        choose = activation_offloading.choose_offload_sets
        activation_offloading.choose_offload_sets = lambda *graph: (mark_all(*graph), choose(*graph))[1]
        streams = {"activation_offload_separate_stream": True, "activation_reload_prefetch": True}
        return compiled_with(step, enable_activation_offloading=True, **streams)
    if name == "checkpoint":
        return step.measured(contextlib.nullcontext(), step.checkpointed)
    if name == "recompute":
        return step.measured(spillway.recompute())
    if name == "save_on_cpu":
        return step.measured(torch.autograd.graph.save_on_cpu(pin_memory=True))
    if name == "trl":
        from trl.models.activation_offloading import OffloadActivations

        return step.measured(OffloadActivations())
    from torchtune.training import OffloadActivations

    return step.measured(OffloadActivations())


def shares_down_to(kept: int, peak: int, least: int) -> Iterator[float]:
    """From nothing gone to 1.1 times the least budget, in six parts."""
    most = (peak - 1.1 * least) / kept
    return (most * each / 6 for each in range(7))


def main(model: str, *asked: str) -> None:
    spillway.use_allocator()
    step = Step(model)
    plain = step.measured(contextlib.nullcontext())
    torch.compiler.reset()  # what was compiled without a region
    plain["kept"] = step.kept_by_blocks()
    if share := model.partition("=")[2]:
        torch.compiler.reset()
        functorch_config.activation_memory_budget = float(share)
    found: dict[str, Any] = {"plain": plain, "budgets": [], "limits": {}, "ways": {}}
    for each in asked:
        if each == "budgets":
            least = under(step, plain["peak"], "probe").get("least", plain["peak"])
            shares = list(shares_down_to(plain["kept"], plain["peak"], least))
        elif each[0].isdigit():
            shares = [float(each)]
        elif each.startswith("time="):
            limit = each.removeprefix("time=")
            region = spillway.offload(time_limit=float(limit), tag=f"within-{limit}".replace(".", "-"))
            found["limits"][limit] = step.measured(region)
            shares = []
        else:
            found["ways"][each] = way = the_way(each, step)
            budget = -(-way["reserved"] // MIB) * MIB
            way["ours"] = within(step, budget, f"beside-{each}")
            shares = []
        for share in shares:
            budget = plain["peak"] - int(share * plain["kept"])
            tag = f"gone-{share:.3f}".replace(".", "-")
            found["budgets"].append({"gone": share, **under(step, budget, tag)})
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
