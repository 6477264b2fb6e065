# SPDX-License-Identifier: Apache-2.0
"""Activation checkpointing: parts of a model whose activations are recomputed."""

from __future__ import annotations

import copyreg
import functools
import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ContextDecorator, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from spillway._arguments import flag
from spillway._load import glue
from spillway._scope import Opening, Scope

if TYPE_CHECKING:
    import torch

__all__ = ["checkpoint", "checkpoint_wrapper", "disable_checkpointing", "is_checkpointing", "is_recomputing"]

_Result = TypeVar("_Result")


class _State(threading.local):
    """Each list is as long as this many are open."""

    def __init__(self) -> None:
        self.disabled: list[None] = []
        self.checkpointing: list[None] = []
        self.recomputing: list[None] = []


_state = _State()


class _Counted(Scope, ContextDecorator):
    """Counts one more of `_state` inside."""

    def __init__(self, name: str) -> None:
        self._name = name

    def _opening(self) -> Opening:
        open_now: list[None] = getattr(_state, self._name)
        return functools.partial(open_now.append, None), open_now.pop


def disable_checkpointing() -> AbstractContextManager[Any]:
    """Disables checkpointing for this thread: checkpointed functions and modules save their activations."""
    return _Counted("disabled")


def is_checkpointing() -> bool:
    """Whether this thread is in the first run of a checkpointed function."""
    return bool(_state.checkpointing)


def is_recomputing() -> bool:
    """Whether this thread recomputes a checkpointed function for a backward pass."""
    return bool(_state.recomputing)


def checkpoint(
    function: Callable[..., _Result],
    /,
    *args: Any,
    offload_to_cpu: bool = False,
    preserve_rng_state: bool = True,
    **kwargs: Any,
) -> _Result:
    """Call ``function(*args, **kwargs)`` and recompute its activations in the backward pass instead of saving
    them.

    Only the tensors among the arguments are saved, including those in nested lists, tuples and dictionaries.
    Gradients are those without checkpointing, also of parameters and tensors that the function closes over.
    Results are returned unchanged. Works with ``backward``, ``torch.autograd.grad``, retained graphs, double
    backward and nesting. Random numbers of all devices, autocast and running statistics of batch norm layers
    are as if the function had run once. Without gradients, and inside the transforms of ``torch.func``, the
    function runs without checkpointing.

    Args:
        function: must compute the same results from the same arguments. Batch norm layers inside
            ``torch.compile`` are found if it is a module, a method of one, or closes over modules.
        offload_to_cpu: whether to offload its tensor arguments to pinned host memory: they are copied while
            the function runs, and prefetched for the recomputation.
        preserve_rng_state: whether the recomputation draws the same random numbers.

    Raises:
        TypeError: `function` is not callable, or a flag is not a bool.
        RuntimeError: in the backward pass, if an argument was changed in place, or if the recomputation saves
            other tensors or depends on other parameters than the first run (replaced, or restored as by
            ``torch.func.functional_call``). Parameters that are arguments, as in
            ``checkpoint(functional_call, module, parameters, x)``, are saved.
    """
    if not callable(function):
        raise TypeError(f"function must be callable, not {function!r}")
    offload_to_cpu = flag("offload_to_cpu", offload_to_cpu)
    preserve_rng_state = flag("preserve_rng_state", preserve_rng_state)
    return checkpoint_call(function, args, kwargs, offload_to_cpu, preserve_rng_state)


def checkpoint_call(
    function: Callable[..., _Result],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    offload_to_cpu: bool,
    preserve_rng_state: bool = True,
) -> _Result:
    """As ``checkpoint``."""
    result: _Result = _out_of_the_compiler()(function, args, kwargs, offload_to_cpu, preserve_rng_state)
    return result


def _run(
    function: Callable[..., _Result],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    offload_to_cpu: bool,
    preserve_rng_state: bool,
) -> _Result:
    import torch
    from torch.utils import _pytree as pytree

    if _state.disabled or not torch.is_grad_enabled() or _in_function_transform():
        return function(*args, **kwargs)

    leaves, shape = pytree.tree_flatten((args, kwargs))
    indices = [index for index, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    tensors = [leaves[index] for index in indices]
    others = [None if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]

    def again(tensors: list[torch.Tensor]) -> None:
        leaves = list(others)
        for index, tensor in zip(indices, tensors, strict=True):
            leaves[index] = tensor
        args, kwargs = pytree.tree_unflatten(leaves, shape)
        with _Counted("recomputing"), _StatisticsSetAside(function):
            function(*args, **kwargs)

    def first() -> _Result:
        with _Counted("checkpointing"):
            return function(*args, **kwargs)

    return glue().checkpoint(
        first, tensors, again, offload_to_cpu, preserve_rng_state, torch.cuda.is_initialized()
    )


def _in_function_transform() -> bool:
    """Whether a transform of ``torch.func`` runs: its tensors are of no use to a run after it has ended."""
    import torch

    return torch._C._functorch.peek_interpreter_stack() is not None


class _Runner:
    run: Callable[..., Any] | None = None


def _out_of_the_compiler() -> Callable[..., Any]:
    """`_run` and its callees, without compilation: the second run is not compiled, and a compiled first run
    would save other tensors. Functions that are compiled separately stay compiled."""
    if _Runner.run is None:
        import torch

        _Runner.run = torch.compiler.disable(_run)
    return _Runner.run


def checkpoint_wrapper(module: torch.nn.Module, offload_to_cpu: bool = False) -> torch.nn.Module:
    """Make `module` a checkpointed one, in place, and return it: see ``checkpoint``.

    Its class remains a base class of the new one. Parameters, buffers, hooks and ``state_dict`` keys are
    unchanged. A copy runs with its own parameters. Wrapping it again only sets `offload_to_cpu`.

    Raises:
        TypeError: `module` is not a module, or is a scripted one; `offload_to_cpu` is not a bool.
    """
    import torch

    if not isinstance(module, torch.nn.Module) or isinstance(module, torch.jit.ScriptModule):
        raise TypeError(f"module must be an nn.Module and not a ScriptModule, not {module!r}")
    # Not by an attribute's way: what torch.compile gives passes attributes on to the module inside.
    # FairScale's takes any false value, such as an empty dictionary of options.
    offload = flag("offload_to_cpu", offload_to_cpu) if offload_to_cpu else False
    module.__dict__["_spillway_offload_to_cpu"] = offload
    _out_of_the_compiler()  # for a compiler around it
    kind: Any = type(module)
    if not hasattr(kind, "_spillway_base"):
        # A forward of the object's own comes before its class's.
        if "forward" in module.__dict__:
            module.__dict__["_spillway_forward"] = module.__dict__.pop("forward")
        module.__class__ = _checkpointed_class(kind)
    return module


@functools.cache
def _checkpointed_class(base: Any) -> Any:
    """A class like `base`, of its layout, so that an object of the one can become one of the other."""

    @functools.wraps(base.forward)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        own = self.__dict__.get("_spillway_forward")
        function = functools.partial(_call, self, own) if own else functools.partial(base.forward, self)
        return checkpoint_call(function, args, kwargs, self._spillway_offload_to_cpu)

    def reduce(self: Any, protocol: Any) -> Any:
        # A class that is made at run time cannot be found by pickle, so the pickle names its base.
        make, arguments, *state = base.__reduce_ex__(self, protocol)
        if make is copyreg.__newobj__:  # type: ignore[attr-defined]
            return _recomputed, (base,), *state
        return make, arguments, *state

    names = {"__module__": base.__module__, "__qualname__": base.__qualname__, "__doc__": base.__doc__}
    return type(
        base.__name__,
        (base,),
        {
            **names,
            "forward": forward,
            "__reduce_ex__": reduce,
            "_spillway_base": base,
            "_spillway_offload_to_cpu": False,
        },
    )


def _recomputed(base: type) -> Any:
    checkpointed = _checkpointed_class(base)
    return checkpointed.__new__(checkpointed)


def _call(_module: Any, forward: Callable[..., _Result], /, *args: Any, **kwargs: Any) -> _Result:
    """`forward`, which belongs to `_module` in a way that is not to be seen from outside."""
    return forward(*args, **kwargs)


class _StatisticsSetAside(Scope):
    """Batch norm layers write their running statistics to copies that are dropped.

    Buffers written by operators are restored anyway. A compiled graph has no distinguishable layers.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def _opening(self) -> Opening:
        copies = [
            (module._buffers, name, buffer.clone())
            for module in _batch_norms(self._function)
            if module.training and module.track_running_stats
            for name in ("running_mean", "running_var", "num_batches_tracked")
            if (buffer := module._buffers.get(name)) is not None
        ]
        return functools.partial(glue().exchange_items, copies), glue().exchange_items


def _batch_norms(function: Callable[..., Any]) -> dict[torch.nn.modules.batchnorm._BatchNorm, None]:
    """Those of the modules that `function` is, is a method of, is bound to or closes over."""
    import torch

    found: dict[torch.nn.modules.batchnorm._BatchNorm, None] = {}
    for thing in _bound_to(function):
        if isinstance(thing, torch.nn.Module):
            found.update(
                (module, None)
                for module in thing.modules()
                if isinstance(module, torch.nn.modules.batchnorm._BatchNorm)
            )
    return found


def _bound_to(function: Any) -> Iterator[Any]:
    yield function
    if isinstance(function, functools.partial):
        yield from _bound_to(function.func)
        yield from (*function.args, *function.keywords.values())
    elif inspect.ismethod(function):
        yield function.__self__
    elif inspect.isfunction(function):
        for cell in function.__closure__ or ():
            with suppress(ValueError):  # an empty cell
                yield cell.cell_contents
