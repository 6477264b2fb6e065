# SPDX-License-Identifier: Apache-2.0
"""What the regions have in common: entered and left by the thread that they hold for."""

from __future__ import annotations

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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        glue().leave_region(self._open.regions.pop())

    # What is open belongs to threads, not to the object: copies and pickles begin closed.
    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_open"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open = threading.local()
