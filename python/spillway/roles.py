# SPDX-License-Identifier: Apache-2.0
"""Automatic tags by role, from the calls of modules, optimizers and autograd."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from spillway._load import glue

__all__ = ["unwatch", "watch"]


def watch() -> None:
    """Tag memory by its role from now on, outside of the program's own scopes (``tag``).

    ==========================  =============================================================================
    ``parameter``               parameters and buffers of a module, from its first call on
    ``input``                   untagged tensors that are positional arguments of a module
    ``activation/MODULE``       memory of a module's forward pass; the outermost one's: ``activation``
    ``workspace/MODULE``        memory of that module's backward pass; other ones: ``workspace``
    ``workspace/cublas``        cuBLAS's workspaces, from the first step of an optimizer on
    ``gradient``                a tensor that became the ``grad`` of another one
    ``optimizer``               memory that an optimizer of ``torch.optim`` allocates in a step, and its state
    ==========================  =============================================================================

    MODULE is the module's full name below the outermost one that was called, such as ``layers.3.mlp``.
    Everything else stays untagged. Results do not change. Code that ``torch.compile`` traces is not
    watched inside. Costs a few microseconds per call of a module. A second call has no effect; ``unwatch()``
    ends it.
    """
    _Watch.begin()


def unwatch() -> None:
    """Stop tagging by role and remove all hooks. Memory keeps its tags."""
    _Watch.end()


class _Watch:
    handles: list[Any] | None = None
    lock = threading.Lock()

    @classmethod
    def begin(cls) -> None:
        from torch.nn.modules import module
        from torch.optim import optimizer

        with cls.lock:
            if cls.handles is not None:
                return
            hooks = _Hooks()
            glue().roles_in_backward(True)
            cls.handles = [
                module.register_module_forward_pre_hook(hooks.before_module),
                module.register_module_forward_hook(hooks.after_module, always_call=True),
                optimizer.register_optimizer_step_pre_hook(hooks.before_step),
                optimizer.register_optimizer_step_post_hook(hooks.after_step),
            ]

    @classmethod
    def end(cls) -> None:
        with cls.lock:
            for handle in cls.handles or ():
                handle.remove()
            cls.handles = None
            glue().roles_in_backward(False)
            glue().set_role(0)


class _Hooks:
    def __init__(self) -> None:
        import torch

        from spillway._module_calls import OpenCalls

        self.compiling = torch.compiler.is_compiling
        self.glue = glue()
        self.roles: WeakKeyDictionary[Any, int] = WeakKeyDictionary()  # of modules that were met
        self.optimizers: WeakSet[Any] = WeakSet()  # whose state has its role
        self.calls = OpenCalls()  # each opened by its role, and closed by the one that was before it
        self.steps = threading.local()  # opened: the same, of an optimizer's step
        self.parameter = self.glue.intern_tag("parameter")
        self.optimizer = self.glue.intern_tag("optimizer")

    def before_module(self, module: Any, arguments: tuple[Any, ...]) -> None:
        if self.compiling():
            return
        if self.calls.is_open(module):  # a recursion, or one that was left
            self.calls.end_left(module)
        outermost = self.calls.outermost
        role = self.roles.get(module)
        if role is None:
            role = self.meet(outermost or module, module)
        enter = functools.partial(self.glue.enter_module, role, arguments, outermost is None)
        self.calls.begin(module, (enter, self.glue.set_role))

    def after_module(self, module: Any, _arguments: Any, _output: Any) -> None:
        if not self.compiling():
            self.calls.end(module)

    def meet(self, outermost: Any, module: Any) -> int:
        """Learns the names below `outermost` and gives its parameters their role."""
        for path, below in outermost.named_modules():
            name = f"activation/{path.replace('*', '_').replace('/', '_')}" if path else "activation"
            self.roles.setdefault(below, self.glue.intern_tag(name))
        self.glue.set_roles(_memory(outermost), self.parameter)
        # One that is called inside another and is no part of it: known by its class.
        return self.roles.setdefault(module, self.glue.intern_tag(f"activation/{type(module).__name__}"))

    def before_step(self, optimizer: Any, *_: Any) -> None:
        self.calls.end_left()
        if optimizer not in self.optimizers:
            self.optimizers.add(optimizer)
            self.glue.set_roles(_parameters(optimizer), self.parameter)
            self.glue.set_roles(_state(optimizer.state), self.optimizer)
        self.glue.set_workspace_roles()
        self.after_step()  # of a step that was interrupted
        self.steps.opened = self.glue.Opened()
        self.steps.opened.open(functools.partial(self.glue.set_role, self.optimizer), self.glue.set_role)

    def after_step(self, *_: Any) -> None:
        opened = getattr(self.steps, "opened", None)
        if opened is not None:
            opened.close()


def _memory(module: Any) -> Iterator[Any]:
    yield from module.parameters()
    yield from module.buffers()


def _parameters(optimizer: Any) -> Iterator[Any]:
    for group in optimizer.param_groups:
        yield from group["params"]


def _state(state: Any) -> Iterator[Any]:
    """All that lies in an optimizer's state; callers skip values that are not tensors."""
    for value in state.values():
        if isinstance(value, dict):
            yield from _state(value)
        else:
            yield value
