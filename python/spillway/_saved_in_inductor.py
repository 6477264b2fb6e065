# SPDX-License-Identifier: Apache-2.0
"""What inductor has to know of the operators of `_saved_in_graphs`.

Inductor reuses buffers inside a graph without asking the allocator. What is saved may still be copied to the
host then, on another stream; what is loaded may share its memory with other saved tensors. Both are freed as
other buffers are, so the allocator decides when their memory is free, but nothing else is written to them.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

from spillway._graph_operators import operators

__all__ = ["PATCHES"]


def _reuse_nothing(module: ModuleType) -> None:
    """Buffers of the generated code."""
    wrapper = module.PythonWrapperCodegen
    can_reuse, codegen_free, free_line = wrapper.can_reuse, wrapper.codegen_free, module.FreeLine

    @functools.wraps(can_reuse)
    def can_reuse_if_not_ours(self: Any, input_buffer: Any, *arguments: Any, **options: Any) -> Any:
        if input_buffer.get_name() in _buffers():
            return False
        return can_reuse(self, input_buffer, *arguments, **options)

    @functools.wraps(codegen_free)
    def free_without_reuse(self: Any, buffer: Any) -> None:
        name = buffer.get_name()
        if name not in _buffers() or name in self.freed:
            codegen_free(self, buffer)
        elif can_reuse(self, buffer):  # not an input of the graph, for example
            self.freed.add(name)
            self.writeline(free_line(self, buffer))

    wrapper.can_reuse, wrapper.codegen_free = can_reuse_if_not_ours, free_without_reuse


def _buffers() -> set[str]:
    """The buffers of the compiled graph that are saved or loaded, and those that own their memory."""
    from torch._inductor.virtualized import V

    graph: Any = V.graph
    found = getattr(graph, "_spillway_buffers", None)
    if found is None or found[0] != len(graph.operations):
        save, load, _ = operators()
        names: set[str] = set()
        for each in graph.operations:
            operator = getattr(each, "op_overload", None)
            if operator is save:
                names.update(given.get_name() for given in each.inputs)
            elif operator is load:
                names.update(made.get_name() for made in (each, *each.outputs))
        names.update(_owners(graph, names))
        found = graph._spillway_buffers = (len(graph.operations), names)
    return found[1]


def _owners(graph: Any, names: set[str]) -> set[str]:
    """Buffers in whose memory others are made or seen, such as the result of a concatenation."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        buffer = graph.name_to_buffer.get(waiting.pop())
        if buffer is None:
            continue
        for name in (*buffer.get_inputs_that_alias_output(), *buffer.get_mutation_names()):
            if name not in found:
                found.add(name)
                waiting.append(name)
    return found


def _keep_strides(module: ModuleType) -> None:
    """Of handles, though all dimensions have one element: they are those of the layout that inductor has
    chosen for what is saved, in the cases where it is not the traced one."""
    original, are_equal = module.try_match_insignificant_strides, module.significant_strides_equal

    @functools.wraps(original)
    def try_match_insignificant_strides(tensor: Any, strides: Any) -> Any:
        matched = original(tensor, strides)
        saved = None if matched is tensor else _saved_as(tensor)
        if saved is None or are_equal(strides, saved.get_stride(), saved.get_size()):
            return matched
        return tensor

    module.try_match_insignificant_strides = try_match_insignificant_strides  # type: ignore[attr-defined]


def _saved_as(tensor: Any) -> Any:
    """What is saved, of a handle; None of another result."""
    from torch._inductor.virtualized import V

    buffer = V.graph.name_to_buffer.get(tensor.get_name())
    for operator in getattr(buffer, "inputs", ()):
        if getattr(operator, "op_overload", None) is operators().save:
            return operator.inputs[0]
    return None


def _write_nothing(module: ModuleType) -> None:
    """Operators that inductor gives their first argument's memory: not that of what is loaded."""
    original = module.get_node_storage

    loaded: weakref.WeakKeyDictionary[Any, set[Any]] = weakref.WeakKeyDictionary()  # storages, by graph

    @functools.wraps(original)
    def get_node_storage(node: Any) -> Any:
        if node.graph not in loaded:
            loads = node.graph.find_nodes(op="call_function", target=operators().load, sort=False)
            loaded[node.graph] = {original(each) for each in loads}
        storage = original(node)
        return None if storage in loaded[node.graph] else storage

    module.get_node_storage = get_node_storage  # type: ignore[attr-defined]


# By module, to be called with it.
PATCHES: dict[str, Callable[[ModuleType], None]] = {
    "torch._inductor.codegen.wrapper": _reuse_nothing,
    "torch._inductor.fx_passes.reinplace": _write_nothing,
    "torch._inductor.ir": _keep_strides,
}
