# SPDX-License-Identifier: Apache-2.0
"""What is claimed of Spillway beside the others, each with its bound; what was not measured is no claim."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bench.figures.registry import Bound, entry
from bench.peers import budgets, model_state

PEERS = ("torchtune", "trl")


def check(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        *of_hooks(found["hooks"]),
        *of_memory(found["memory"]),
        *of_parts(found["sequential"]),
        *of_budgets(found["budgets"]),
    ]


def claim(what: str, value: float, most: float) -> dict[str, Any]:
    return entry(what, value, Bound(f"<= {most:.4g}"))


def of_hooks(hooks: dict[str, dict[str, float]]) -> Iterator[dict[str, Any]]:
    """Of tensors that stay the most expensive way, of those that move the more expensive manager."""
    for allocator, times in hooks.items():
        where = f"over {allocator}'s allocator"
        for kind, most in (("stay", 0.4), ("move", 1.0)):
            ours = max(time for name, time in times.items() if name.startswith(f"{kind}: Spillway"))
            yield claim(f"{kind}: cost over an empty pair's, {where}", ours / times["empty pair"], most)
            for peer in PEERS:
                theirs = [t for name, t in times.items() if name.startswith(f"{kind}: {peer}")]
                if theirs:
                    yield claim(f"{kind}: cost over {peer}'s, {where}", ours / theirs[0], 1 / 3)


def of_memory(memory: dict[str, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Bytes copied out ÷ bytes offloaded after the forward pass; 1 if nothing is copied needlessly."""
    for model in next(iter(memory.values())):
        variants = [(name, variant) for models in memory.values() for name, variant in models[model].items()]
        copied = [
            (name, variant["out"] / variant["offloaded"])
            for name, variant in variants
            if variant.get("offloaded", 0) > 0
        ]
        ours = max(value for name, value in copied if "Spillway" in name)
        theirs = [value for name, value in copied if "Spillway" not in name]
        yield claim(
            f"{model}: bytes copied per byte offloaded, also beside the others", ours, min([1.0, *theirs])
        )
        yield claim(f"{model}: variants of Spillway with other bits than plain's", unequal(variants), 0)


def unequal(variants: list[tuple[str, dict[str, Any]]]) -> int:
    return sum(not variant["equal"] for name, variant in variants if "Spillway" in name)


def of_parts(sequential: dict[str, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Memory is what tensors take at the peak, and what the allocator has taken from the device for them."""
    for activations, variants in sequential.items():
        plain, theirs = variants["plain, torch, 4"], variants.get("theirs, torch, 4", {})
        ours = [variant for name, variant in variants.items() if name.startswith("ours")]
        where = f"parts, activations {activations}"
        units = max((variant["in"] + variant["out"]) / variant["weights"] for variant in ours)
        yield claim(f"{where}: units of traffic", units, 3.01)
        yield claim(
            f"{where}: variants of Spillway with other bits than plain's",
            sum(variant["bits"] != plain["bits"] for variant in ours),
            0,
        )
        for memory in ("peak", "reserved"):
            if memory in theirs:
                most = max(variant[memory] for variant in ours)
                yield claim(f"{where}: {memory} over FairScale's", most / theirs[memory], 1)


def of_budgets(found: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Predicted by dry runs."""
    for way, worst in budgets.slower(found).items():
        yield claim(f"a budget of what {budgets.WAYS[way]} holds: time of a step, worst model", worst, 1)
    times, share = budgets.batches(found)
    yield claim("plain's largest batch over ours at 0.95 of its tokens per second", 1 / max(times, 1e-9), 0.4)
    yield claim("plain's best tokens per second over ours at that batch", 1 / max(share, 1e-9), 1 / 0.95)


def of_model_state(found: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Of Spillway beside plain's bits, while model state is offloaded; and predicted times."""
    runs = found["bits"]["spillway"]
    other = [name for name in runs if model_state.outcome(found["bits"], "spillway", name) != "equal"]
    yield claim("model state: variants of Spillway with other bits than plain's", len(other), 0)
    still = [name for name, one in runs.items() if not one.get("fetched")]
    yield claim("model state: variants of Spillway that fetched none", len(still), 0)
    for way, slower in model_state.slower(found["full_size"]).items():
        yield claim(f"a budget of what {way} holds: time of a step, worst batch", slower, 1)
