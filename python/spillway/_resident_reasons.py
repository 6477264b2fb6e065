# SPDX-License-Identifier: Apache-2.0
"""Model state by class, and why storages of it stay on the GPU, in words. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spillway.report.sizes import count, size

__all__ = ["REASONS", "class_lines", "reason_lines"]

#: As resident_reason_name() of torch_glue/model_state/resident_reason.cpp.
REASONS = {
    "tiny": "smaller than 1024 bytes",
    "other_memory": "memory that Spillway's heap did not allocate for it",
    "sparse": "part of a sparse tensor",
    "process_group": "a torch.distributed process group exists",
    "cuda_graph": "used in a CUDA graph",
    "address_in_use": "DLPack or __cuda_array_interface__ shared its address",
    "shared_with_processes": "shared with other processes",
    "part_of_a_wrapper": "part of a sparse or nested tensor",
    "data_ptr": "Tensor.data_ptr() gave out its address in this step",
    "referenced_elsewhere": "a view from before it was managed refers to it",
    "no_host_memory": "no host memory could be pinned for it",
    "kept_on_device": "spillway.memory.keep_on_device was given it",
    "ended": "its tensor has ended",
}


def class_lines(classes: Mapping[str, Any]) -> list[str]:
    """Each class of model state that exists, with its resident and offloaded bytes."""
    return [
        f"{name.replace('_', ' ')} {size(of['resident_bytes'])} on the GPU, "
        f"{size(of['offloaded_bytes'])} on the host"
        for name, of in classes.items()
        if of["resident_bytes"] or of["offloaded_bytes"]
    ]


def reason_lines(state: Mapping[str, Any]) -> list[str]:
    """Why model state stays on the GPU, the most bytes first; then the optimizers that step as a whole."""
    reasons = sorted(state.get("resident_reasons", {}).items(), key=lambda each: -each[1]["bytes"])
    lines = [
        f"{count(of['storages'], 'storage')} of {size(of['bytes'])}: {REASONS.get(name, name)}"
        for name, of in reasons
    ]
    lines += [f"{name} steps as a whole: {why}" for name, why in state.get("whole_steps", {}).items()]
    return lines
