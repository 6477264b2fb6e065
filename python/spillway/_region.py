# SPDX-License-Identifier: Apache-2.0
"""The base of the regions: a thread enters and leaves them for itself."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from contextlib import ContextDecorator
from typing import Any

from spillway import _saved_in_graphs
from spillway._load import glue
from spillway._scope import Opening, Scope

__all__ = ["Region"]


class Region(Scope, ContextDecorator):
    """A region of this thread that can be entered again, also while it is open, and in several threads."""

    def __init__(self) -> None:
        _saved_in_graphs.start()  # for what is compiled until the region is entered, too
        super().__init__()

    def _entry(self) -> Callable[[], int]:
        """A native function that enters a region of the glue and returns its number."""
        raise NotImplementedError

    def _opening(self) -> Opening:
        # Only programs that have hooks on modules have calls that were left.
        if calls := sys.modules.get("spillway._module_calls"):
            calls.end_all_left()
        return self._entry(), glue().leave_region

    def __call__(self, func: Any) -> Any:
        """As a decorator. Raises TypeError for a function whose body runs after its call has returned."""
        if (
            inspect.iscoroutinefunction(func)
            or inspect.isgeneratorfunction(func)
            or inspect.isasyncgenfunction(func)
        ):
            raise TypeError(
                f"{func.__qualname__}: is a generator or coroutine function, whose body runs after the call. "
                "Enter the region inside it, around the forward pass."
            )
        return super().__call__(func)
