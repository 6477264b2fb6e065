# SPDX-License-Identifier: Apache-2.0
"""Live objects of a class, found by the garbage collector instead of a registration."""

from __future__ import annotations

import gc
from typing import TypeVar

__all__ = ["living"]

_Class = TypeVar("_Class")


def living(of: type[_Class]) -> list[_Class]:
    """All live objects of the class, including incompletely constructed ones, which may lack attributes;
    excluding those frozen by ``gc.freeze()``. Takes as long as a collection."""
    return [each for each in gc.get_objects() if issubclass(type(each), of)]
