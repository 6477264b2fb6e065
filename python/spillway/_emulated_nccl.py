# SPDX-License-Identifier: Apache-2.0
"""NCCL on the emulated GPU: process groups run over gloo, and the collectives of one process over copies."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from spillway._substitutions import announce

# --- process groups


def patch_groups(module: Any) -> None:
    """`module`: torch.distributed.distributed_c10d."""
    original = module._new_process_group_helper

    @functools.wraps(original)
    def helper(
        size: int, rank: int, ranks: Any, backend: Any, store: Any, *arguments: Any, **options: Any
    ) -> Any:
        used = _without_nccl(str(backend))
        if used == str(backend):
            return original(size, rank, ranks, backend, store, *arguments, **options)
        announce("process groups of backend nccl run over gloo: the emulated GPU has no NCCL")
        options.pop("backend_options", None)  # NCCL's
        group, prefixed = original(size, rank, ranks, used, store, *arguments, **options)
        if group in module._world.pg_map:
            # Scripts ask for the backend to decide which device their tensors go to.
            module._world.pg_map[group] = (backend, prefixed)
            group._set_default_backend(module.ProcessGroup.BackendType.GLOO)
        return group, prefixed

    module._new_process_group_helper = helper
    coalesced = module._coalescing_manager

    @functools.wraps(coalesced)
    def coalescing_manager(group: Any = None, device: Any = None, async_ops: bool = False) -> Any:
        """NCCL launches the calls inside together; gloo runs one after the other."""
        if device is not None and not _coalesces(group or module._get_default_group(), device):
            device = None
        return coalesced(group, device, async_ops)

    module._coalescing_manager = coalescing_manager


def _coalesces(group: Any, device: Any) -> bool:
    import torch

    return bool(group._get_backend(torch.device(device)).supports_coalescing)


def _without_nccl(backend: str) -> str:
    """The backend with gloo instead of NCCL, for the same devices: NCCL alone still refuses CPU tensors."""
    if backend.lower() in ("nccl", "undefined"):
        return "cuda:gloo"
    return ",".join(
        f"{pair.rpartition(':')[0]}:gloo" if pair.lower().endswith(":nccl") else pair
        for pair in backend.split(",")
    )


# --- the devices of one process: torch.cuda.comm and torch.cuda.nccl, as nn.DataParallel uses them


def patch_devices(torch: ModuleType) -> None:
    """Replaces NCCL's calls by copies and sums. Callers see the same buffers, views and streams."""
    functions: tuple[Callable[..., Any], ...] = (
        _broadcast,
        _broadcast_out,
        _broadcast_coalesced,
        _nccl_all_reduce,
        _nccl_reduce,
        _nccl_broadcast,
        _nccl_all_gather,
        _nccl_reduce_scatter,
    )
    for function in functions:
        setattr(torch._C, function.__name__, function)
    for name in ("_nccl_unique_id", "_nccl_init_rank"):
        setattr(torch._C, name, _refused(name))


def _refused(name: str) -> Callable[..., Any]:
    def refuse(*arguments: Any) -> Any:
        raise NotImplementedError(
            f"torch._C.{name}: the emulated GPU has no NCCL communicators. Use torch.distributed."
        )

    return refuse


def _broadcast(tensor: Any, devices: Sequence[int]) -> list[Any]:
    """A copy for each device; on the tensor's own, the tensor."""
    import torch

    if not devices:
        raise RuntimeError("broadcast: expected at least one device, not an empty list")
    if tensor.is_cuda and tensor.get_device() != devices[0]:
        raise RuntimeError(
            f"broadcast: the tensor is on device {tensor.get_device()}, but the first device is "
            f"{devices[0]}. Put the tensor's device first."
        )
    first = 1 if tensor.is_cuda else 0
    copies = [
        torch.empty_like(tensor, device=torch.device("cuda", device), memory_format=torch.contiguous_format)
        for device in devices[first:]
    ]
    return [*([tensor] if first else []), *_broadcast_out(tensor, copies)]


def _broadcast_out(tensor: Any, out: Sequence[Any]) -> list[Any]:
    for each in out:
        each.copy_(tensor, non_blocking=True)
    return list(out)


def _broadcast_coalesced(tensors: Sequence[Any], devices: Sequence[int], buffer_size: int) -> list[list[Any]]:
    """As PyTorch does it: dense tensors in buffers of one type, whose copies the results are views of."""
    import torch
    from torch._utils import _flatten_dense_tensors, _take_tensors, _unflatten_dense_tensors

    first = torch.device("cuda", devices[0])
    wrong = next((each for each in tensors if each.device != first), None)
    if wrong is not None:
        raise RuntimeError(
            f"broadcast_coalesced: a tensor is on {wrong.device}. Move all tensors to the first device, "
            f"{first}."
        )
    made: list[list[Any]] = [[] for _ in devices[1:]]
    order: list[Any] = []
    for chunk in _take_tensors(tensors, buffer_size):
        order.extend(chunk)
        if chunk[0].is_sparse:
            for results, device in zip(made, devices[1:], strict=True):
                results.extend(each.to(torch.device("cuda", device)) for each in chunk)
            continue
        buffer = _flatten_dense_tensors(chunk)
        for results, copy in zip(made, _broadcast(buffer, devices)[1:], strict=True):
            results.extend(_unflatten_dense_tensors(copy, chunk))
    indices = {id(each): index for index, each in enumerate(order)}
    return [list(tensors), *([results[indices[id(each)]] for each in tensors] for results in made)]


_OPERATIONS = ("add", "mul", "maximum", "minimum")  # ncclRedOp_t: sum, prod, max, min; 4 is avg
_AVERAGE = 4


def _reduced(inputs: Sequence[Any], op: int, name: str) -> Any:
    """The reduction of the tensors, on the device of the first one."""
    import torch

    if not 0 <= op <= _AVERAGE:
        raise NotImplementedError(
            f"torch.cuda.nccl.{name}: op={op}: expected 0 to {_AVERAGE} (sum, prod, max, min, avg)"
        )
    operation = getattr(torch, "add" if op == _AVERAGE else _OPERATIONS[op])
    total = inputs[0].clone()
    for each in inputs[1:]:
        operation(total, each.to(total.device, non_blocking=True), out=total)
    if op == _AVERAGE:
        total = total.div(len(inputs), rounding_mode=None if total.is_floating_point() else "trunc")
    return total


def _on_current_streams(streams: Any, comms: Any, name: str) -> None:
    if comms is not None or (streams is not None and any(each is not None for each in streams)):
        raise NotImplementedError(
            f"torch.cuda.nccl.{name}: runs on the current streams only, because the GPU is emulated. "
            "Leave out `streams` and `comms`."
        )


def _nccl_all_reduce(inputs: Any, outputs: Any, op: int, streams: Any, comms: Any) -> None:
    _on_current_streams(streams, comms, "all_reduce")
    _broadcast_out(_reduced(inputs, op, "all_reduce"), outputs)


def _nccl_reduce(inputs: Any, output: Any, root: int, op: int, streams: Any, comms: Any) -> None:
    _on_current_streams(streams, comms, "reduce")
    output.copy_(_reduced(inputs, op, "reduce"), non_blocking=True)


def _nccl_broadcast(inputs: Any, root: int, streams: Any, comms: Any) -> None:
    _on_current_streams(streams, comms, "broadcast")
    _broadcast_out(inputs[root], [each for index, each in enumerate(inputs) if index != root])


def _nccl_all_gather(inputs: Any, outputs: Any, streams: Any, comms: Any) -> None:
    _on_current_streams(streams, comms, "all_gather")
    for output in outputs:
        for part, each in zip(output.view(-1).chunk(len(inputs)), inputs, strict=True):
            part.copy_(each.reshape(-1), non_blocking=True)


def _nccl_reduce_scatter(inputs: Any, outputs: Any, op: int, streams: Any, comms: Any) -> None:
    _on_current_streams(streams, comms, "reduce_scatter")
    parts = _reduced(inputs, op, "reduce_scatter").view(-1).chunk(len(outputs))
    for part, output in zip(parts, outputs, strict=True):
        output.copy_(part.view(output.shape), non_blocking=True)
