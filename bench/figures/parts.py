# SPDX-License-Identifier: Apache-2.0
"""Figures of models in parts."""

from __future__ import annotations

from bench.figures.registry import Session, figure


@figure("parts_traffic_units", "bytes per step in both directions / bytes of parameters", "<= 3", "emulated")
def traffic_units(session: Session) -> float:
    """A model in parts fetches its weights twice and offloads its gradients once, and copies nothing else."""
    results = session.probe("offload_model")
    one = results["one"]
    return (one["weights_in"] + one["gradients_out"]) / results["plain"]["weights"]


@figure("parts_traffic_five_micro_batches", "bytes per step, five micro-batches / one", "= 1", "emulated")
def traffic_of_micro_batches(session: Session) -> float:
    """Micro-batches share each load of a part, so that their number does not change the offloaded bytes."""
    results = session.probe("offload_model")
    five, one = (results[name]["weights_in"] + results[name]["gradients_out"] for name in ("five", "one"))
    return five / one


@figure("parts_peak_over_plain", "device memory at its peak, in 12 parts / plain", "<= 0.1", "emulated")
def peak_over_plain(session: Session) -> float:
    """With AdamW on the host a model in parts trains in a small share of plain PyTorch's memory."""
    results = session.probe("offload_model")
    return results["one"]["peak"] / results["plain"]["peak"]


@figure("parts_peak_over_two_parts", "device memory at its peak / weights of two parts", "<= 2", "emulated")
def peak_over_two_parts(session: Session) -> float:
    """The device holds two parts, the gradients of one, and what runs."""
    one = session.probe("offload_model")["one"]
    return one["peak"] / one["slots"]
