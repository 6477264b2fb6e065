# SPDX-License-Identifier: Apache-2.0
"""Scopes of a thread: opened and closed such that Ctrl-C leaves none open, whenever it arrives."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from spillway._load import glue

if TYPE_CHECKING:
    from typing_extensions import Self

    from spillway._module_calls import OpenCalls

__all__ = ["Opening", "Scope", "open_calls"]

#: The native function that opens, and the one that closes again. The latter gets what the former returned,
#: and no argument where that is None. Neither runs Python code: that could be interrupted in between.
#: Arguments are bound by ``functools.partial``.
Opening = tuple[Callable[[], Any], Callable[..., Any]]


class Scope:
    """A context manager of a thread. It can be entered again while it is open, and in several threads.

    ``__enter__`` and ``__exit__`` are native functions (torch_glue/scopes_module.cpp). They open and
    remember, or forget and close, between two of Python's checks for signals. A ``with`` statement has none
    between ``__enter__`` and its block, up to Python 3.13; 3.14 has one there, for locks too (CPython's issue
    148874). ``_opening`` has what is opened. A class may also have

    * ``_entered()``, called when it is open: its result is what ``with`` binds. What it raises closes the
      scope.
    * ``_left(error)``, called when it is closed, with the exception that left it, or None.
    """

    def __new__(cls, *_: Any, **__: Any) -> Self:
        _define()
        scope = super().__new__(cls)
        scope._opened = threading.local()
        return scope

    _opened: threading.local
    _entered: Callable[[], Any] | None = None
    _left: Callable[[BaseException | None], None] | None = None

    def _opening(self) -> Opening:
        """Returns the function that opens the scope. May raise: nothing is open yet."""
        raise NotImplementedError

    if TYPE_CHECKING:

        def __enter__(self) -> Self: ...

        def __exit__(
            self,
            kind: type[BaseException] | None,
            error: BaseException | None,
            trace: TracebackType | None,
        ) -> None: ...

    @property
    def is_open(self) -> bool:
        """Whether this thread is in it."""
        return bool(getattr(self._opened, "all", None))

    # What is open belongs to threads, not to the object: copies and pickles begin closed.
    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_opened"}


@functools.cache
def _define() -> None:
    glue().define_scope(Scope)


@functools.cache
def open_calls(opener: str) -> OpenCalls:
    """The calls of modules for which the module named `opener` has opened something. Imports torch."""
    from spillway._module_calls import OpenCalls

    return OpenCalls()
