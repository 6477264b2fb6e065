# SPDX-License-Identifier: Apache-2.0
"""Figures of models in parts."""

from __future__ import annotations

from bench.figures.registry import Session, figure


@figure("parts_traffic_units", "bytes per pass in both directions / bytes of parameters", "<= 3", "emulated")
def traffic_units(session: Session) -> float:
    """The passes of a model in parts fetch its weights twice, offload its gradients once, and copy nothing
    else."""
    results = session.probe("offload_model")
    one = results["one"]
    return (one["weights_in"] + one["gradients_out"]) / results["plain"]["weights"]


@figure("parts_step_units", "bytes per AdamW step, both directions / bytes of parameters", "<= 8", "emulated")
def step_units(session: Session) -> float:
    """An AdamW step of a model in parts fetches weights, gradients and two states once, and offloads them
    once."""
    results = session.probe("offload_model")
    return (results["one"]["step_in"] + results["one"]["step_out"]) / results["plain"]["weights"]


@figure("parts_traffic_five_micro_batches", "bytes per pass, five micro-batches / one", "= 1", "emulated")
def traffic_of_micro_batches(session: Session) -> float:
    """Micro-batches share each load of a part, so that their number does not change the offloaded bytes."""
    results = session.probe("offload_model")
    five, one = (results[name]["weights_in"] + results[name]["gradients_out"] for name in ("five", "one"))
    return five / one


@figure("parts_peak_over_plain", "device memory at its peak, in 12 parts / plain", "<= 0.1", "emulated")
def peak_over_plain(session: Session) -> float:
    """With AdamW a model in parts trains in a small share of plain PyTorch's memory."""
    one, plain = (session.probe("offload_model")[name] for name in ("one", "plain"))
    return max(one["peak_passes"], one["peak_step"]) / max(plain["peak_passes"], plain["peak_step"])


@figure("parts_peak_over_two_parts", "peak of passes / weights of two parts", "<= 2", "emulated")
def peak_over_two_parts(session: Session) -> float:
    """In the passes the device holds two parts, the gradients of one, and what runs."""
    results = session.probe("offload_model")
    return results["one"]["peak_passes"] / (results["plain"]["weights"] / 6)
