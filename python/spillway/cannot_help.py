# SPDX-License-Identifier: Apache-2.0
"""The messages for jobs whose peak offloading does not lower. Imports no torch."""

from __future__ import annotations

from spillway.report.sizes import size

__all__ = ["REASONS", "text"]

#: By number, as HelplessReason of allocator/step/cannot_help.h.
REASONS = (
    "",
    "optimizer",
    "evaluation",
    "operator",
    "compiled_graph",
    "other_offloader",
    "model_state",
)

_TEXTS = {
    "optimizer": (
        "Offloading does not lower the peak: {size} are allocated in the optimizer's step, when no saved "
        "tensor is on the GPU. Use an optimizer that allocates less while it steps (foreach=False or "
        "fused=True) or that keeps smaller states (8-bit, SGD), or run without offloading"
    ),
    "evaluation": (
        "Offloading does not lower the peak: {size} are allocated outside of training steps, such as in an "
        "evaluation, where nothing is saved for a backward pass. Evaluate under torch.no_grad() with a "
        "smaller batch, or run without offloading"
    ),
    "operator": (
        "Offloading does not lower the peak: it is reached inside an operator, by an allocation of {size} "
        "that no graph saves, such as a workspace. Use a smaller batch or another algorithm for that "
        "operator, or run without offloading"
    ),
    "compiled_graph": (
        "Offloading does not lower the peak: {size} are allocated where nothing is saved: inside a graph of "
        "torch.compile that saves its tensors only when it ends, or in an evaluation. Such graphs are "
        'those for CUDA graphs (mode="reduce-overhead" or "max-autotune"), those that were compiled under '
        "saved-tensor hooks of the program, and those from before Spillway started. Compile without these, "
        "or run without torch.compile"
    ),
    "other_offloader": (
        "Offloading does not lower the peak: other saved-tensor hooks (another activation offloader, or "
        "activation checkpointing) handle what the program saves. Switch one of them off"
    ),
    "model_state": (
        "Offloading cannot meet the budget: parameters, gradients and optimizer states alone exceed it by "
        "{size}. Train fewer parameters (LoRA), keep smaller optimizer states (8-bit, SGD), shard them "
        "(FSDP), or use a larger budget"
    ),
}


def text(reason: str, size_in_bytes: int) -> str:
    """The cause, its size, and what to do. ``reason``: one of REASONS."""
    return _TEXTS[reason].format(size=size(size_in_bytes))
