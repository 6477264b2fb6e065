# SPDX-License-Identifier: Apache-2.0
"""Figures of `spillway.offload(budget=…)`, at full sizes, predicted by dry runs as of an H200."""

from __future__ import annotations

from statistics import median
from typing import Any

from bench.figures.registry import Session, figure

MODELS = ("llama-8b-8-layers", "gpt2-xl", "lora-8b-qv", "lora-8b-all", "vit-l")
ETA = "least time that any plan could take / time of a step"
SLOWDOWN = "time of a step, under the budget / plain"


def budgets(session: Session, model: str) -> list[dict[str, Any]]:
    """From a budget that needs no offloading to 1.1 times the smallest one."""
    return session.dry("h200", "planning", model, "budgets")["budgets"]


def of_limit(session: Session) -> list[float]:
    return [each["of_limit"] for model in MODELS for each in budgets(session, model)]


def slowdown(session: Session, gone: str) -> float:
    found = session.dry("h200", "planning", "llama-8b-8-layers", gone)
    return found["budgets"][0]["ms"] / found["plain"]["ms"]


@figure("plan_of_limit_median", ETA, ">= 0.95", "cpu")
def eta_median(session: Session) -> float:
    """From a budget that needs no offloading to 1.1 times the smallest one, steps come near the least time of
    any plan (dry run)."""
    return median(of_limit(session))


@figure("plan_of_limit_worst", ETA, ">= 0.92", "cpu")
def eta_worst(session: Session) -> float:
    """The same for the worst budget of five models (dry run)."""
    return min(of_limit(session))


@figure("plan_half_gone", SLOWDOWN, "<= 1.02", "cpu")
def half(session: Session) -> float:
    """Eight layers of Llama 3 8B, half of their saved bytes offloaded or recomputed (dry run)."""
    return slowdown(session, "0.5")


@figure("plan_three_quarters_gone", SLOWDOWN, "<= 1.06", "cpu")
def three_quarters(session: Session) -> float:
    """The same with three quarters of their saved bytes (dry run)."""
    return slowdown(session, "0.75")


@figure("plan_compiled_half_gone", SLOWDOWN, "<= 1.03", "cpu")
def compiled_half(session: Session) -> float:
    """The model compiled, half of what its graphs save offloaded or recomputed by the compiler, whose share
    is 0.9 (dry run)."""
    found = session.dry("h200", "planning", "llama-8b-8-layers:compiled=0.9", "0.5")
    return found["budgets"][0]["ms"] / found["plain"]["ms"]


@figure("plan_compiled_half_offloaded", SLOWDOWN, "<= 1.03", "cpu")
def compiled_half_offloaded(session: Session) -> float:
    """Eight compiled layers of Llama 3 70B, half of what their graphs save offloaded (dry run)."""
    found = session.dry("h200", "planning", "llama-70b-8-layers:compiled", "0.5")
    return found["budgets"][0]["ms"] / found["plain"]["ms"]


@figure("plan_compiled_of_limit_worst", ETA, ">= 0.92", "cpu")
def compiled_eta(session: Session) -> float:
    """Inside compiled graphs, at budgets down to 1.1 times the smallest one, by offloading (dry run)."""
    return min(each["of_limit"] for each in budgets(session, "llama-8b-8-layers:compiled"))


@figure("plan_time_limit", "time of a step, with time_limit=1.02 / plain", "<= 1.02", "cpu")
def time_limit(session: Session) -> float:
    """Eight layers of Llama 3 8B in the least memory that a time limit allows: it is kept (dry run)."""
    found = session.dry("h200", "planning", "llama-8b-8-layers", "time=1.02")
    return found["limits"]["1.02"]["ms"] / found["plain"]["ms"]


@figure("plan_peak_over_budget", "allocated bytes at the peak / budget, worst budget", "<= 1", "cpu")
def peak(session: Session) -> float:
    """Allocated bytes never exceed the budget (dry run)."""
    return max(each["peak"] / each["budget"] for model in MODELS for each in budgets(session, model))


@figure("plan_reserved_over_budget", "reserved bytes at the peak / budget, worst budget", "<= 1", "cpu")
def reserved(session: Session) -> float:
    """Reserved bytes are within the budget in each step but the first, also while plans settle, and near the
    smallest budget, which for Llama is the memory of save_on_cpu (dry run)."""
    found = [each for model in MODELS for each in budgets(session, model)]
    near = session.dry("h200", "planning", MODELS[0], "save_on_cpu")
    found.append(near["ways"]["save_on_cpu"]["ours"])
    return max(each["reserved_from_second"] / each["budget"] for each in found)


@figure("plan_capacity", "largest batch that fits, ours / plain", ">= 2.5", "cpu")
def capacity(session: Session) -> float:
    """32 layers of Llama 3 8B, full fine-tune, at 0.95 of plain's tokens per second or more, of batches up to
    12 (dry run)."""
    plain = session.dry("h200", "capacity", "plain", "12")
    ours = session.dry("h200", "capacity", "ours", "12")
    best = max(plain.values())
    return max((int(batch) for batch, rate in ours.items() if rate >= 0.95 * best), default=0) / max(
        map(int, plain)
    )


@figure("planner_ms", "ms of CPU to plan a step of 5000 storages", "<= 10", "cpu")
def planner(session: Session) -> float:
    """A plan is ready before the next step's forward pass has begun."""
    times = session.benchmark("plan_bench")
    return max(times["plan/5000"], times["plan_with_operands/5000"]) / 1e6


@figure("plan_dry_run_time", "real time of a dry run's steps, under a budget / plain", "<= 2", "cpu")
def dry_run_time(session: Session) -> float:
    """Eight steps of a dry run under a budget, the recorded one among them: at most twice plain's time."""
    times = session.dry("h200", "dry_run_time", "llama-8b-8-layers", "0.5")
    return times["budget"] / times["plain"]
