# SPDX-License-Identifier: Apache-2.0
"""Names of parameters and buffers, for errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spillway._living import living

if TYPE_CHECKING:
    import torch

__all__ = ["named_tensors"]


def named_tensors() -> list[tuple[str, torch.Tensor]]:
    """Of all modules that are alive, by their names in those that are in no other one."""
    from torch.nn import Module

    modules = [each for each in living(Module) if "_modules" in vars(each)]
    inside = {id(child) for each in modules for child in each._modules.values()}
    return [
        named
        for each in modules
        if id(each) not in inside
        for named in (*each.named_parameters(), *each.named_buffers())
    ]
