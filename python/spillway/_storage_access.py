# SPDX-License-Identifier: Apache-2.0
"""Ways to a tensor's memory around PyTorch's operators, which fetch what they need themselves."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

from spillway._after_import import after_import
from spillway._load import glue

__all__ = ["start"]

# Methods of a storage that read or write its bytes.
_METHODS = (
    "__getitem__",
    "__setitem__",
    "_share_cuda_",
    "_write_file",
    "clone",
    "copy_",
    "fill_",
    "resize_",
    "share_memory_",
    "to",
    "tolist",
    "type",
)


@functools.cache
def start(manage: Callable[[Any], None]) -> None:
    """From now on. `manage(tensor)` manages a tensor on the GPU, and gives it the guard's key."""
    import torch
    from torch.utils import dlpack

    tensor: Any = torch.Tensor
    tensor.data_ptr = _with_address(tensor.data_ptr)
    tensor.__dlpack__ = _shared(tensor.__dlpack__)
    interface: Any = tensor.__cuda_array_interface__
    tensor.__cuda_array_interface__ = property(_shared(interface.fget))
    dlpack.to_dlpack = _shared(dlpack.to_dlpack)  # type: ignore[attr-defined]
    tensor.set_ = _guarded_alias(tensor.set_, manage)
    tensor.new = _new_like(tensor.new)
    storage: Any = torch.UntypedStorage
    for name in _METHODS:
        if hasattr(storage, name):
            setattr(storage, name, _resident(getattr(storage, name)))
    storage.cpu = _read_where_it_is(_resident(storage.cpu))
    after_import("safetensors.torch", _compare_addresses)


_compares = threading.local()


def _compare_addresses(module: ModuleType) -> None:
    """Functions that find tensors which share memory use addresses as identities."""
    for name in ("_end_ptr", "_filter_shared_not_shared", "_is_complete"):
        if hasattr(module, name):
            setattr(module, name, _comparing(getattr(module, name)))


def _comparing(original: Any) -> Any:
    @functools.wraps(original)
    def compare(*arguments: Any, **options: Any) -> Any:
        before = getattr(_compares, "addresses", False)
        _compares.addresses = True
        try:
            return original(*arguments, **options)
        finally:
            _compares.addresses = before

    return compare


def _with_address(original: Any) -> Any:
    """The caller passes the address to a kernel: it is that of the device until the step ends."""

    @functools.wraps(original)
    def data_ptr(self: Any) -> Any:
        if self.is_cuda and not getattr(_compares, "addresses", False):
            glue().keep_in_step(self)
        return original(self)

    return data_ptr


def _shared(original: Any) -> Any:
    """The memory is used by another library from now on, so it stays at its address."""

    @functools.wraps(original)
    def share(self: Any, *arguments: Any, **options: Any) -> Any:
        if self.is_cuda:
            glue().keep_resident(self)
        return original(self, *arguments, **options)

    return share


def _guarded_alias(original: Any, manage: Callable[[Any], None]) -> Any:
    """A tensor that is set to a managed storage is guarded, as that storage's other tensors are. `torch.load`
    sets each tensor to its storage: what it loads is managed before it has an owner."""

    @functools.wraps(original)
    def set_(self: Any, *arguments: Any, **options: Any) -> Any:
        result = original(self, *arguments, **options)
        if self.is_cuda:
            _join(self.untyped_storage())
            manage(self)
        return result

    return set_


def _new_like(original: Any) -> Any:
    """`Tensor.new` takes the type of its result from the dispatch keys, and knows none for the guard's."""

    @functools.wraps(original)
    def new(self: Any, *arguments: Any, **options: Any) -> Any:
        import torch

        if self.is_cuda and self.layout is torch.strided:
            self = torch.empty(0, dtype=self.dtype, device=self.device)
        return original(self, *arguments, **options)

    return new


def _resident(original: Any) -> Any:
    @functools.wraps(original)
    def method(self: Any, *arguments: Any, **options: Any) -> Any:
        used = [each for each in (self, *arguments) if _is_managed(each)]
        if not used:
            for each in (self, *arguments):
                _join(each)
            return original(self, *arguments, **options)
        held = glue().ResidentStorages(used)
        try:
            return original(self, *arguments, **options)
        finally:
            held.release()

    return method


def _read_where_it_is(original: Any) -> Any:
    """An offloaded storage is read from its host copy: a checkpoint needs no room on the GPU."""

    @functools.wraps(original)
    def cpu(self: Any) -> Any:
        offloaded = glue().read_offloaded(self) if self.is_cuda else None
        return original(self) if offloaded is None else offloaded.untyped_storage()

    return cpu


def _is_managed(value: Any) -> bool:
    storage = _on_gpu(value)
    return storage is not None and glue().is_managed(storage)


def _join(value: Any) -> None:
    """An optimizer's step that runs beside may still change a storage that is too small to be managed."""
    if (storage := _on_gpu(value)) is not None:
        glue().join_overlapped(storage)


def _on_gpu(value: Any) -> Any:
    """Its storage; None if it has none on a GPU."""
    import torch

    storage = getattr(value, "_untyped_storage", value)  # of a typed one
    return storage if isinstance(storage, torch.UntypedStorage) and storage.is_cuda else None
