# SPDX-License-Identifier: Apache-2.0
"""Flex attention in the graphs of torch.compile in dry runs: one kernel that keeps no scores, as inductor's
template. Run operator by operator it would keep them all, several times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from spillway.dry_run.emulator import assumed, cost

_FORWARD = torch.ops.higher_order.flex_attention
_BACKWARD = torch.ops.higher_order.flex_attention_backward
_ATTENTION, _ATTENTION_BACKWARD = 2, 3  # kinds of kernels: emulator.h
_HALF, _TF32, _SINGLE = 0, 1, 2


class Interpreter(fx.Interpreter):
    """Of a graph with flex attention in it."""

    def run_node(self, node: fx.Node) -> Any:
        if node.target not in (_FORWARD, _BACKWARD):
            return super().run_node(node)
        arguments, keywords = self.fetch_args_kwargs_from_env(node)
        assert not keywords
        return (_forward if node.target is _FORWARD else _backward)(node.meta["val"], arguments)


def _forward(made: Sequence[torch.Tensor], arguments: Sequence[Any]) -> tuple[torch.Tensor, ...]:
    """The results, the logarithms of the sums, and where they are asked for the largest scores."""
    query, key, value, options = *arguments[:3], arguments[6]
    out, sums, *largest = map(_like, made[:2] if not options.get("OUTPUT_MAX") else made)
    _cost(_ATTENTION, 1, (query, key, value), (out, sums, *largest))
    if not largest:
        largest = [sums.view_as(sums) for _ in made[2:]]  # nothing reads them
    return (out, sums, *largest)


def _backward(made: Sequence[Any], arguments: Sequence[Any]) -> tuple[Any, ...]:
    """Gradients of query, key and value, and of what the program's functions read."""
    query, key, value, out, sums = arguments[:5]
    rows = torch.empty_like(sums)  # for each row, the sum of output times gradient
    gradients = [_like(each) for each in made[:3]]
    others = tuple(None if each is None else _like(each) for each in made[3])
    _cost(_ATTENTION_BACKWARD, 2.5, (query, key, value, out, out, sums, rows), gradients)
    return (*gradients, others)


def _like(fake: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype, device=fake.device)


def _cost(kernel: int, passes: float, read: Sequence[torch.Tensor], made: Sequence[torch.Tensor]) -> None:
    """Products of queries and keys, and of scores and values, in the share of all blocks that is assumed."""
    query, key, value = read[:3]
    batch, heads, rows, width = query.shape
    pairs = batch * heads * rows * key.shape[2]
    flops = 2.0 * pairs * (width + value.shape[3]) * passes * assumed().nonzero
    kind = _HALF
    if query.dtype == torch.float32:
        kind = _TF32 if torch.backends.cuda.matmul.allow_tf32 else _SINGLE
    cost(query.device, sum(each.nbytes for each in (*read, *made)), flops, kind, kernel)
