# SPDX-License-Identifier: Apache-2.0
"""Sizes of tensors as operands in a graph whose symbols are inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import fx

__all__ = ["is_computable", "size_node", "symbols_of"]


def is_computable(size: Any, symbols: dict[Any, fx.Node]) -> bool:
    """Whether size_node() can express it."""
    import sympy  # type: ignore[import-untyped]
    from torch.utils._sympy.functions import FloorDiv

    if isinstance(size, int):
        return True
    kinds = (sympy.Integer, sympy.Symbol, sympy.Add, sympy.Mul, FloorDiv)
    parts = sympy.preorder_traversal(size.node.expr)
    return all(isinstance(each, kinds) and (not each.is_Symbol or each in symbols) for each in parts)


def symbols_of(graph: fx.Graph) -> dict[Any, fx.Node]:
    """The graph's inputs that are symbols of sizes."""
    import sympy
    import torch

    found = {}
    for node in graph.find_nodes(op="placeholder"):
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt) and isinstance(value.node.expr, sympy.Symbol):
            found[value.node.expr] = node
    return found


def size_node(size: Any, symbols: dict[Any, fx.Node]) -> Any:
    """The size as an operand: a number, or what computes it."""
    from torch import fx
    from torch.utils._sympy.interp import sympy_interp
    from torch.utils._sympy.reference import PythonReferenceAnalysis

    if isinstance(size, int):
        return size
    expression = size.node.expr
    if expression in symbols:
        return symbols[expression]
    proxies = {symbol: fx.Proxy(node) for symbol, node in symbols.items()}
    computed = sympy_interp(PythonReferenceAnalysis, proxies, expression)
    if not isinstance(computed, fx.Proxy):
        return int(computed)
    computed.node.meta["val"] = size
    return computed.node
