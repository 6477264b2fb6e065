# SPDX-License-Identifier: Apache-2.0
"""Has the layers of a model recomputed in the backward pass, without a changed line of the program."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Iterator
from typing import Any

__all__ = ["Layers", "repeated"]


class Layers:
    """From ``watch()`` on, each model that is called gets its repeated layers checkpointed at its first call,
    by ``torch.utils.checkpoint`` without reentry. A model that has a switch of its own for that, as those of
    transformers have, gets it turned on instead: it knows what must not run twice."""

    def __init__(self) -> None:
        self.count = 0  # of layers that are recomputed; a model's own switch counts as its layers
        self._met: weakref.WeakSet[Any] = weakref.WeakSet()

    def watch(self) -> None:
        from torch.nn.modules import module

        module.register_module_forward_pre_hook(self._before)

    def _before(self, module: Any, _: Any) -> None:
        import torch

        if torch.compiler.is_compiling() or module in self._met:
            return
        self._met.update(module.modules())
        layers = list(repeated(module))
        if not layers:
            return
        self.count += len(layers)
        switch = next((each for each in module.modules() if _has_switch(each)), None)
        if switch is not None:
            switch.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
            return
        for layer in layers:
            layer.forward = _recomputed(layer)


def repeated(module: Any) -> Iterator[Any]:
    """The layers below `module`: of the outermost ModuleLists and Sequentials, the children that have a class
    in common with another child, and parts of their own."""
    from torch.nn import ModuleList, Sequential

    children = list(module.children())
    layers: list[Any] = []
    if isinstance(module, ModuleList | Sequential):
        classes = [type(child) for child in children]
        layers = [child for child in children if classes.count(type(child)) > 1 and list(child.children())]
    for child in children:
        if any(child is layer for layer in layers):
            yield child
        else:
            yield from repeated(child)


def _has_switch(module: Any) -> bool:
    return bool(getattr(module, "supports_gradient_checkpointing", False)) and callable(
        getattr(module, "gradient_checkpointing_enable", None)
    )


def _recomputed(layer: Any) -> Any:
    import torch
    from torch.utils.checkpoint import checkpoint

    forward = layer.forward

    @functools.wraps(forward)
    def call(*arguments: Any, **named: Any) -> Any:
        if not torch.is_grad_enabled() or not layer.training:
            return forward(*arguments, **named)
        # Names bound beforehand: the layer's may be the checkpoint's, too.
        return checkpoint(functools.partial(forward, **named), *arguments, use_reentrant=False)

    return call
