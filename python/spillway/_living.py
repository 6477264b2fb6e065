# SPDX-License-Identifier: Apache-2.0
"""Objects of a class that a program has made and told nothing of."""

from __future__ import annotations

import gc
from typing import TypeVar

__all__ = ["living"]

_Class = TypeVar("_Class")


def living(of: type[_Class]) -> list[_Class]:
    """All objects of the class that are alive, also those that are being made and lack attributes; not those
    that ``gc.freeze()`` was called behind. Takes as long as a collection."""
    return [each for each in gc.get_objects() if issubclass(type(each), of)]
