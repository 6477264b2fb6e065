# SPDX-License-Identifier: Apache-2.0
"""A stand-in for `torch._dynamo` that imports it when something needs it.

PyTorch imports dynamo when a program constructs an optimizer, or calls another function that dynamo must not
trace. The import takes longer than that of torch, and is most of an emulated program's start. Before it is
imported, dynamo traces nothing, so its `disable` and `graph_break` have no effect.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import sys
import weakref
from types import ModuleType
from typing import Any

_NAME = "torch._dynamo"


class _LazyDynamo(ModuleType):
    """Imports the module at the first use of anything but `disable` and `graph_break`."""

    def __getattr__(self, name: str) -> Any:
        # Tools such as inspect look for special names in all modules, in the middle of other imports.
        if name.startswith("__") and name not in ("__all__", "__path__"):
            raise AttributeError(name)
        return getattr(_load(), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(_load(), name, value)  # importlib sets submodules on the module that it found here

    def __dir__(self) -> list[str]:
        return dir(_load())


class _ImportedMeanwhile(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """An import of a submodule looks at the stand-in's path, which imports dynamo, and that the submodule. It
    must then get that one: another copy would lack the attributes that its own submodules are."""

    def __init__(self) -> None:
        self.specs: dict[str, Any] = {}

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if not name.startswith(f"{_NAME}.") or name not in sys.modules:
            return None
        self.specs[name] = sys.modules[name].__spec__
        return importlib.util.spec_from_loader(name, self)

    def create_module(self, spec: Any) -> ModuleType:
        return sys.modules[spec.name]

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self.specs.pop(module.__name__)


def _is_loaded() -> bool:
    return not isinstance(sys.modules.get(_NAME), _LazyDynamo)


def _load() -> ModuleType:
    if _is_loaded():
        return importlib.import_module(_NAME)
    del sys.modules[_NAME]
    dynamo = importlib.import_module(_NAME)
    # Where PyTorch keeps what `disable` returned (torch/_compile.py): dynamo would trace that of this file.
    while _disabled:
        function, (arguments, named) = _disabled.popitem()
        function.__dynamo_disable = dynamo.disable(function, *arguments, **named)
    return dynamo


#: Functions that were disabled before dynamo was imported, and how; a closure can end before that.
_disabled: weakref.WeakKeyDictionary[Any, tuple[tuple[Any, ...], dict[str, Any]]] = (
    weakref.WeakKeyDictionary()
)


def _disable(fn: Any = None, *arguments: Any, **named: Any) -> Any:
    if _is_loaded() or not callable(fn):
        return _load().disable(fn, *arguments, **named)
    _disabled[fn] = arguments, named
    return fn


def _graph_break(*arguments: Any, **named: Any) -> None:
    if _is_loaded():
        _load().graph_break(*arguments, **named)


def install(torch: ModuleType) -> None:
    """Puts the stand-in in place, unless dynamo is imported already."""
    if _NAME in sys.modules:
        return
    lazy = _LazyDynamo(_NAME)
    spec = importlib.util.find_spec(_NAME)
    # Not by __setattr__, which loads the module.
    file = spec.origin if spec is not None else None
    lazy.__dict__.update(disable=_disable, graph_break=_graph_break, __spec__=spec, __file__=file)
    sys.modules[_NAME] = lazy
    sys.meta_path.insert(0, _ImportedMeanwhile())
    torch.__dict__["_dynamo"] = lazy
