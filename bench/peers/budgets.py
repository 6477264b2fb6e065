# SPDX-License-Identifier: Apache-2.0
"""Full-size training steps beside other ways to need less memory, and batches that fit: dry runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.figures.session import Session

PROFILE = "h200"
MODELS = {
    "llama-8b-8-layers": "Llama 3 8B, 8 layers, batch 4, sequence 4096",
    "gpt2-xl": "GPT-2 XL, dropout, batch 8, sequence 1024",
    "lora-8b-qv": "LoRA on q and v of Llama 3 8B, batch 1, sequence 4096",
    "lora-8b-all": "LoRA on all layers of Llama 3 8B, batch 1, sequence 4096",
}
WAYS = {
    "checkpoint": "checkpoint each block",
    "save_on_cpu": "save_on_cpu",
    "trl": "TRL's OffloadActivations",
    "torchtune": "torchtune's OffloadActivations",
}
#: Batches of Llama 3 8B with 32 layers are tried up to this one.
MOST = "16"


def measure(missing: dict[str, Any]) -> dict[str, Any]:
    """By model: plain, and each way with ours in what it holds. By way: tokens per second of each batch."""
    dry = Session("emulated", Path()).dry
    ways = [way for way in WAYS if not missing.get(way)]
    beside = {model: dry(PROFILE, "planning", model, *ways) for model in MODELS}
    return {
        "beside": {model: {"plain": one["plain"], **one["ways"]} for model, one in beside.items()},
        "capacity": {way: dry(PROFILE, "capacity", way, MOST) for way in ("plain", "checkpoint", "ours")},
    }


def slower(found: dict[str, Any]) -> dict[str, float]:
    """By way, of the models the worst: time, ours / its."""
    worst: dict[str, float] = {}
    for ways in found["beside"].values():
        for way, one in ways.items():
            if way != "plain":
                worst[way] = max(worst.get(way, 0.0), one["ours"]["ms"] / one["ms"])
    return worst


def batches(found: dict[str, Any]) -> tuple[int, float]:
    """The largest batch that keeps 0.95 of plain's best tokens per second, over plain's largest; and the
    tokens per second there, over plain's best."""
    plain, ours = ({int(b): rate for b, rate in found["capacity"][way].items()} for way in ("plain", "ours"))
    best = max(plain.values())
    largest = max((batch for batch, rate in ours.items() if rate >= 0.95 * best), default=0)
    return largest / max(plain), ours.get(largest, 0.0) / best
