# SPDX-License-Identifier: Apache-2.0
"""What the regions have in common: entered and left by the thread that they hold for."""

from __future__ import annotations

import inspect
import threading
from abc import ABC, abstractmethod
from contextlib import ContextDecorator
from types import TracebackType
from typing import TYPE_CHECKING, Any

from spillway._load import glue

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Region"]


class Region(ContextDecorator, ABC):
    """A region of this thread that can be entered again, also while it is open, and in several threads."""

    def __init__(self) -> None:
        self._open = threading.local()

    @abstractmethod
    def _enter(self) -> int:
        """Enters a region of the glue and returns its number."""

    def __enter__(self) -> Self:
        region = self._enter()
        if not hasattr(self._open, "regions"):
            self._open.regions = []
        self._open.regions.append(region)
        return self

    def __call__(self, func: Any) -> Any:
        """As a decorator. Raises TypeError for a function whose body runs after its call has returned."""
        if (
            inspect.iscoroutinefunction(func)
            or inspect.isgeneratorfunction(func)
            or inspect.isasyncgenfunction(func)
        ):
            raise TypeError(
                f"{func.__qualname__} is a generator or coroutine function, whose body runs after the call: "
                "enter the region inside it, around the forward pass"
            )
        return super().__call__(func)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self.is_open:
            raise RuntimeError(
                f"{type(self).__name__} is not open on this thread: "
                "leave it once, on the thread that entered it"
            )
        glue().leave_region(self._open.regions.pop())

    @property
    def is_open(self) -> bool:
        """Whether this thread is in it."""
        return bool(getattr(self._open, "regions", None))

    # What is open belongs to threads, not to the object: copies and pickles begin closed.
    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_open"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open = threading.local()
