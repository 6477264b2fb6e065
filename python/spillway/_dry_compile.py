# SPDX-License-Identifier: Apache-2.0
"""torch.compile in dry runs: the graphs that inductor would compile, with the memory and time they take then.

The operators are those of inductor's decompositions, and its partitioner decides what is saved. What inductor
makes one kernel of (elementwise operators, reductions and views that read one another) runs as one here: it
allocates its results and none of what lies between, and takes the time of reading and writing what crosses
its border. Products, attention and everything else run as they are.
"""

from __future__ import annotations

import copy
import functools
import heapq
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import fx
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner, Partition
from torch.fx.passes.operator_support import OperatorSupportBase

from spillway import _dry_flex
from spillway.dry_run.emulator import Accounting, assumed, cost

_aten, _prims = torch.ops.aten, torch.ops.prims
# Of what inductor writes as code of its own, those that no tag names. Not scatters: they change memory that
# is there already, so that it must be.
_FUSED = {
    *(_aten.sum, _aten.mean, _aten.amax, _aten.amin, _aten.prod, _aten.any, _aten.all, _aten.var),
    *(_aten.var_mean, _aten.argmax, _aten.argmin, _aten.cat, _aten.full, _aten.full_like, _aten.arange),
    *(_aten.empty, _aten.clone, _aten._to_copy, _aten._unsafe_view, _aten.constant_pad_nd, _aten.gather),
    *(_aten.index, _aten.embedding, _aten.slice_scatter, _aten.select_scatter, _aten.repeat, _aten.flip),
    *(_aten.rand, _aten.rand_like, _aten.randn),
    *(_prims.convert_element_type, _prims.iota, _prims.broadcast_in_dim),
}
SMALL = 4096  # bytes: operators on no more than that are computed


def _is_view(node: fx.Node) -> bool:
    """Whether its result lies in the memory of its first argument."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    if node.target.overloadpacket is _aten._unsafe_view:
        return True
    returned = [each.alias_info for each in node.target._schema.returns]
    return len(returned) == 1 and returned[0] is not None and not returned[0].is_write


def _on_gpu(node: fx.Node) -> bool:
    value = node.meta.get("val")
    values = value if isinstance(value, (tuple, list)) else (value,)
    return all(isinstance(each, torch.Tensor) and each.is_cuda for each in values)


class _Fused(OperatorSupportBase):
    def is_node_supported(self, submodules: Any, node: fx.Node) -> bool:
        if node.target is operator.getitem:
            source = node.args[0]
            return isinstance(source, fx.Node) and self.is_node_supported(submodules, source)
        target = node.target
        if not isinstance(target, torch._ops.OpOverload) or target._schema.is_mutable or not _on_gpu(node):
            return False
        return torch.Tag.pointwise in target.tags or target.overloadpacket in _FUSED or _is_view(node)


def _root(node: fx.Node) -> fx.Node:
    while _is_view(node):
        source = node.args[0]
        assert isinstance(source, fx.Node)  # a view has a tensor
        node = source
    return node


def _bytes(tensors: Sequence[torch.Tensor]) -> int:
    """Of the memory that is read or written; what is broadcast counts once."""
    return sum(min(each.nbytes, _span(each)) for each in tensors)


def _span(tensor: torch.Tensor) -> int:
    """From the first to the last byte. The storage's size is not read: Python would then reference the
    storage, and storages that are referenced elsewhere are not offloaded."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (last + 1) * tensor.element_size() if tensor.numel() else 0


class Kernel(torch.nn.Module):
    """A fused subgraph: its results in new memory or as views, and its time."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__()
        nodes = list(module.graph.nodes)
        inputs = [node for node in nodes if node.op == "placeholder"]
        (returned,) = (node.args[0] for node in nodes if node.op == "output")
        self.single = isinstance(returned, fx.Node)
        results = [returned] if self.single else list(returned)
        tensors = [node.meta["val"] for node in nodes if isinstance(node.meta.get("val"), torch.Tensor)]
        self.small = module if all(each.nbytes <= SMALL for each in tensors) else None
        self.read = [at for at, node in enumerate(inputs) if _is_read(node)]
        roots = list(dict.fromkeys(root for root in map(_root, results) if root not in inputs))
        self.made = [(*_layout(root), root.meta["val"].device, _value(root)) for root in roots]
        # For each result: the input or the new tensor that it lies in, and where.
        indices = {node: at for at, node in enumerate([*inputs, *roots])}
        self.results = [(indices[_root(node)], *_layout(node)[:2], _offset(node)) for node in results]

    def __call__(self, *inputs: torch.Tensor) -> Any:
        """No call of a module of the program: global hooks do not see it."""
        if self.small is not None:
            return self.small.forward(*inputs)
        made = []
        for size, stride, dtype, device, value in self.made:
            made.append(torch.empty_strided(size, stride, dtype=dtype, device=device))
            if made[-1].nbytes <= SMALL:
                made[-1].fill_(value)
        roots = [*inputs, *made]
        results = [
            roots[at].as_strided(size, stride, roots[at].storage_offset() + offset)
            for at, size, stride, offset in self.results
        ]
        if made:
            read = [inputs[at] for at in self.read if inputs[at].is_cuda]
            cost(made[0].device, _bytes([*read, *made]))
        return results[0] if self.single else tuple(results)


def _is_read(node: fx.Node) -> bool:
    """By more than views of it."""
    return any(_is_read(user) if _is_view(user) else user.op != "output" for user in node.users)


def _value(node: fx.Node) -> float:
    """The values of a small result of a larger operation: as of the operator alone."""
    packet = getattr(node.target, "overloadpacket", None)
    if packet in (_aten.isnan, _aten.isinf):
        return float(1 - assumed().finite)
    return 0 if packet in (_aten.any, _aten.argmax, _aten.argmin) else float(assumed().value)


def _offset(node: fx.Node) -> int:
    offset: int = node.meta["val"].storage_offset() - _root(node).meta["val"].storage_offset()
    return offset


def _layout(node: fx.Node) -> tuple[tuple[int, ...], tuple[int, ...], torch.dtype]:
    value = node.meta["val"]
    return tuple(value.shape), value.stride(), value.dtype


def _is_plain(module: fx.GraphModule) -> bool:
    """Whether all its tensors have sizes that are numbers."""
    values = (node.meta.get("val") for node in module.graph.nodes)
    return not any(
        isinstance(size, torch.SymInt)
        for value in values
        if isinstance(value, torch.Tensor)
        for size in (*value.shape, *value.stride(), value.storage_offset())
    )


def _ordered(module: fx.GraphModule, before: dict[str, int]) -> None:
    """Every node at the position of its last part: what is fused must not begin, and allocate, too early."""
    graph = module.graph
    nodes = list(graph.nodes)
    waiting = {node: len(node.all_input_nodes) for node in nodes}
    position = {node: (before.get(node.name, node.meta.get("last", -1)), at) for at, node in enumerate(nodes)}
    ready = [(position[node], node) for node in nodes if waiting[node] == 0]
    heapq.heapify(ready)
    last = graph._root
    while ready:
        _, node = heapq.heappop(ready)
        last.append(node)
        last = node
        for user in node.users:
            waiting[user] -= 1
            if waiting[user] == 0:
                heapq.heappush(ready, (position[user], user))
    graph.lint()


def _connected(partition: Partition) -> Iterator[Partition]:
    """Its parts of which each node reads or is read by another. The partitioner puts together whatever may
    run at one time, of any layers: such a kernel would hold all of their results."""
    left = dict.fromkeys(partition.nodes)
    while left:
        part = [next(iter(left))]
        del left[part[0]]
        for node in part:  # grows
            for near in (*node.all_input_nodes, *node.users):
                if near in left:
                    del left[near]
                    part.append(near)
        yield Partition(nodes=part)


def _fuse(module: fx.GraphModule) -> fx.GraphModule:
    """A copy whose fusible parts are kernels."""
    copied = fx.GraphModule(module, copy.deepcopy(module.graph))
    before = {node.name: at for at, node in enumerate(copied.graph.nodes)}
    partitioner = CapabilityBasedPartitioner(copied, _Fused(), allows_single_node_partition=True)
    connected = [part for found in partitioner.propose_partitions() for part in _connected(found)]
    copied = partitioner.fuse_partitions(connected, prefix="fused_")
    for node in copied.graph.nodes:
        if node.op == "call_module" and node.target.startswith("fused_"):
            part = getattr(copied, node.target)
            inside = (each for each in part.graph.nodes if each.op not in ("placeholder", "output"))
            node.meta["last"] = max(before.get(each.name, -1) for each in inside)
            setattr(copied, node.target, Kernel(part))
    _ordered(copied, before)
    copied.recompile()
    return copied


def fused(module: fx.GraphModule, _inputs: Any) -> Callable[..., Any]:
    """A graph as inductor's code takes memory and time; one whose sizes are not known yet stays as it is."""
    final = _fuse(module) if _is_plain(module) else module

    def run(arguments: list[Any]) -> Any:
        return _dry_flex.Interpreter(final).boxed_run(arguments)  # type: ignore[no-untyped-call]

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def _saving(module: fx.GraphModule, inputs: Any) -> Callable[..., Any]:
    """As fused(), for a forward pass that keeps tensors for its backward pass, which nothing records."""
    run, accounting = fused(module, inputs), Accounting()

    def save(arguments: list[Any]) -> Any:
        accounting.allocates_for("activations")
        try:
            return run(arguments)
        finally:
            accounting.allocates_for("other")

    save._boxed_call = True  # type: ignore[attr-defined]
    return save


def backend(module: fx.GraphModule, inputs: Any) -> Callable[..., Any]:
    """Of torch.compile."""
    from functorch.compile import min_cut_rematerialization_partition
    from torch._dynamo.backends.common import aot_autograd
    from torch._inductor.decomposition import select_decomp_table

    partition = functools.partial(min_cut_rematerialization_partition, compiler="inductor")
    return aot_autograd(
        fw_compiler=_saving,
        bw_compiler=fused,
        inference_compiler=fused,
        decompositions=select_decomp_table,
        partition_fn=partition,
    )(module, inputs)
