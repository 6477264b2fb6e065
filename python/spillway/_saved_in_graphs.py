# SPDX-License-Identifier: Apache-2.0
"""What graphs of `torch.compile` save: each tensor is offloaded on its own while the forward graph runs, and
fetched where the backward graph first uses it.

AOTAutograd splits a function into a forward and a backward graph, whatever backend compiles them. Autograd
sees the saved tensors when the forward graph has ended, and wants them back before the backward graph begins.
So they pass through `spillway::save` after the last use in the forward graph, which returns a handle, and
through `spillway::load` before the first use in the backward graph.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any

from spillway import _saved_in_inductor
from spillway._after_import import after_import
from spillway._graph_operators import fake_handle, operators
from spillway._graph_sizes import is_computable, size_node, symbols_of

if TYPE_CHECKING:
    import torch
    from torch import fx

__all__ = ["saves_as_a_whole", "start"]

# The value of PyTorch's setting. It is part of the keys of the compiler's caches, so graphs that were
# compiled without Spillway, or by another version of this pass, are not used.
_SETTING = "spillway-2"
_MIN_BYTES = 65536  # of a storage: autograd saves smaller ones, which takes the compiler less time
_UNSEEN = "saved_tensor_with_no_vc_check"  # PyTorch's mark of what autograd's hooks do not see
_left_alone: list[bool] = []  # an element for each graph
_captured: list[bool] = []  # an element for each graph that is being compiled for CUDA graphs
_unknown: list[str] = []  # modules of PyTorch that are not as this version of Spillway knows them


@functools.cache
def start() -> None:
    """From now on, for graphs that are compiled later. Without effect where the program has turned on
    PyTorch's own activation offloading in graphs."""
    if (utils := sys.modules.get("torch._dynamo.utils")) and utils.counters["stats"]["unique_graphs"]:
        _left_alone.append(True)
    _patched("torch._functorch.config", _set)
    _patched("torch._functorch._activation_offloading.activation_offloading", _patch)
    _patched("torch._functorch._aot_autograd.autograd_cache", _key)
    _patched("torch._dynamo.backends.cudagraphs", _leave_alone)
    for name, patch in _saved_in_inductor.PATCHES.items():
        _patched(name, patch)


def saves_as_a_whole() -> bool:
    """Whether there may be a graph that saves its tensors when it ends."""
    return bool(_left_alone)


def _patched(name: str, patch: Callable[[ModuleType], None]) -> None:
    """Where PyTorch's internals have changed, all graphs are left alone."""

    def try_patch(module: ModuleType) -> None:
        try:
            patch(module)
        except AttributeError:
            _unknown.append(name)

    after_import(name, try_patch)


def _set(config: ModuleType) -> None:
    if not config.enable_activation_offloading:
        config.enable_activation_offloading = _SETTING  # type: ignore[attr-defined]


def _patch(module: ModuleType) -> None:
    """Both partitioners call this function with the graphs that they have made."""
    config: Any = importlib.import_module("torch._functorch.config")
    original = module.enable_activation_offloading

    @functools.wraps(original)
    def enable_activation_offloading(*arguments: Any, **options: Any) -> None:
        ours = config.enable_activation_offloading == _SETTING
        if ours and _may_change_graphs() and len(arguments) >= 3:
            save_one_by_one(*arguments[:3])
            return
        _left_alone.append(True)
        if not ours:
            original(*arguments, **options)

    module.enable_activation_offloading = enable_activation_offloading  # type: ignore[attr-defined]


def _key(module: ModuleType) -> None:
    """What is not changed must not be found in a cache as what was, and the other way round."""
    config: Any = importlib.import_module("torch._functorch.config")
    original = module.autograd_cache_key

    @functools.wraps(original)
    def autograd_cache_key(*arguments: Any, **options: Any) -> Any:
        setting = config.enable_activation_offloading
        if setting == _SETTING and not _may_change_graphs():
            setting = False
        with config.patch(enable_activation_offloading=setting):
            return original(*arguments, **options)

    module.autograd_cache_key = autograd_cache_key  # type: ignore[attr-defined]


def _leave_alone(module: ModuleType) -> None:
    """What the backend "cudagraphs" compiles."""
    original = module.cudagraphs

    @functools.wraps(original)
    def cudagraphs(*arguments: Any, **options: Any) -> Any:
        _captured.append(True)
        try:
            return original(*arguments, **options)
        finally:
            _captured.pop()

    module.cudagraphs = cudagraphs  # type: ignore[attr-defined]


def _may_change_graphs() -> bool:
    """Not under saved-tensor hooks of the program, such as those of a checkpoint: they decide about what the
    graph saves, and would see handles. Not for CUDA graphs, whose memory stays where it was captured."""
    import torch
    from torch._inductor import config

    if _unknown or _captured:
        return False
    hooks = torch._C._autograd._top_saved_tensors_default_hooks(True)
    return hooks is None and not config.triton.cudagraphs


def save_one_by_one(forward: fx.GraphModule, backward: fx.GraphModule, returned: int) -> None:
    """Change both graphs. `returned`: the number of results of the forward graph before what it saves."""
    output = forward.graph.output_node()
    results: list[Any] = list(output.args[0])  # type: ignore[arg-type]
    inputs = {node.name: node for node in backward.graph.find_nodes(op="placeholder")}
    last_uses = _last_uses(forward.graph)
    stays = {_storage(node) for node in forward.graph.find_nodes(op="placeholder")}
    stays.update(_storage(node) for node in results[:returned])
    order, symbols = {node: at for at, node in enumerate(backward.graph.nodes)}, symbols_of(backward.graph)
    saved: dict[fx.Node, fx.Node] = {}
    for at, node in enumerate(results[returned:], returned):
        restored = inputs.get(getattr(node, "name", ""))
        if restored is None or _value(node) is None:
            continue
        offloads = _is_offloadable(node) and _storage(node) not in stays
        if not offloads and not _is_unseen(node):
            continue
        if node not in saved:
            handle = _fake_handle(_value(node))
            if not _load_before_use(restored, handle, order, symbols):
                continue
            operator = operators().save if offloads else operators().keep
            saved[node] = _save_after(last_uses[_storage(node)], node, operator, handle)
        results[at] = saved[node]
    if not saved:
        return
    output.args = (tuple(results) if isinstance(output.args[0], tuple) else results,)
    forward.recompile()
    backward.recompile()


def _value(node: Any) -> Any:
    import torch

    value = node.meta.get("val") if hasattr(node, "meta") else None
    return value if isinstance(value, torch.Tensor) else None


def _values(node: Any) -> Iterator[torch.Tensor]:
    import torch
    from torch.utils import _pytree

    if hasattr(node, "meta"):
        yield from (
            each for each in _pytree.tree_leaves(node.meta.get("val")) if isinstance(each, torch.Tensor)
        )


def _storage_of(value: torch.Tensor) -> Any:
    import torch

    return value.untyped_storage()._cdata if value.layout is torch.strided else id(value)


def _storage(node: Any) -> Any:
    """Equal for tensors that share memory; None if it is no tensor."""
    value = _value(node)
    return None if value is None else _storage_of(value)


def _last_uses(graph: fx.Graph) -> dict[Any, fx.Node]:
    """The last operator that makes or reads each storage."""
    last: dict[Any, fx.Node] = {}
    for node in graph.nodes:
        if node.op != "output":
            for each in (node, *node.all_input_nodes):
                last.update((_storage_of(value), node) for value in _values(each))
    return last


def _is_offloadable(node: Any) -> bool:
    """Whether it may be worth it: the region decides when the graph runs."""
    import torch

    value = _value(node)
    if value is None or not _is_on_gpu(value) or value.layout is not torch.strided:
        return False
    size = value.untyped_storage().nbytes()
    return not isinstance(size, int) or size >= _MIN_BYTES


def _is_unseen(node: Any) -> bool:
    """Whether no saved-tensor hook sees it: a custom function has stored it on its context as it is."""
    return bool(node.meta.get(_UNSEEN)) and _is_on_gpu(_value(node))


def _is_on_gpu(value: torch.Tensor) -> bool:
    return value.is_cuda


def _save_after(last: fx.Node, node: fx.Node, operator: Any, value: Any) -> fx.Node:
    graph = node.graph
    while last.next.op == "placeholder":
        last = last.next
    with graph.inserting_after(last):
        handle: fx.Node = graph.call_function(operator, (node,), name=f"saved_{node.name}")
    handle.meta["val"] = value
    # How autograd keeps it.
    if node.meta.get(_UNSEEN):
        handle.meta[_UNSEEN] = True
    return handle


def _fake_handle(value: Any) -> Any:
    with value.fake_mode:
        return fake_handle(value)


def _load_before_use(
    restored: fx.Node, handle: Any, order: dict[fx.Node, int], symbols: dict[Any, fx.Node]
) -> bool:
    """Make an input of the graph a handle. Returns whether it is: not if its sizes are unknown there, or if
    the graph returns it."""
    graph = restored.graph
    value = _value(restored)
    views, first = _views_before_use(restored, order)
    if value is None or first is None:
        return False
    if not all(is_computable(each, symbols) for each in (*value.size(), *value.stride())):
        return False
    with graph.inserting_before(first):
        sizes = [size_node(each, symbols) for each in value.size()]
        load = graph.call_function(
            operators().load,
            (restored, sizes, value.dtype, value.device),
            name=f"loaded_{restored.name}",
        )
    load.meta.update(restored.meta)
    restored.meta = {key: each for key, each in restored.meta.items() if key != "tensor_meta"}
    restored.meta["val"] = handle
    restored.replace_all_uses_with(load, delete_user_cb=lambda user: user is not load)
    for view in views:
        first.prepend(view)
    return True


def _views_before_use(node: fx.Node, order: dict[fx.Node, int]) -> tuple[list[fx.Node], fx.Node | None]:
    """The first operator that reads the tensor, and the views of it before that one, in order."""
    found: set[fx.Node] = set()
    reads: list[fx.Node] = []
    waiting = [node]
    while waiting:
        for user in waiting.pop().users:
            if _is_view(user):
                found.add(user)
                waiting.append(user)
            else:
                reads.append(user)
    if not reads:
        return [], None
    first = min(reads, key=order.__getitem__)
    if first.op == "output":
        return [], None
    return sorted((each for each in found if order[each] < order[first]), key=order.__getitem__), first


def _is_view(node: fx.Node) -> bool:
    import torch

    return isinstance(node.target, torch._ops.OpOverload) and node.target.is_view
