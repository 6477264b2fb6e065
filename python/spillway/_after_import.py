# SPDX-License-Identifier: Apache-2.0
"""Changes to modules that may be imported later. None is imported for a change."""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

__all__ = ["after_import"]


def after_import(name: str, patch: Callable[[ModuleType], None]) -> None:
    """Call `patch` with the module: now, or at the end of its import."""
    if name in sys.modules:
        patch(sys.modules[name])
    else:
        _Finder.instance().waiting.setdefault(name, []).append(patch)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self) -> None:
        self.waiting: dict[str, list[Callable[[ModuleType], None]]] = {}

    @staticmethod
    @functools.cache
    def instance() -> _Finder:
        finder = _Finder()
        sys.meta_path.insert(0, finder)
        return finder

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in self.waiting:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        loader: Any = None if spec is None else spec.loader
        if loader is None:
            return None
        patches = self.waiting.pop(name)
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            for patch in patches:
                patch(module)

        loader.exec_module = exec_module
        return spec
