# SPDX-License-Identifier: Apache-2.0
"""Names for memory: scopes that a program opens."""

from __future__ import annotations

import functools
from contextlib import ContextDecorator

from spillway._load import glue
from spillway._scope import Opening, Scope

__all__ = ["matches", "tag"]


class tag(Scope, ContextDecorator):
    """Give memory that is allocated inside this scope a tag. A context manager and a decorator.

    Scopes nest: inside ``tag("encoder")``, ``tag("mlp")`` is "encoder/mlp". A scope applies to the thread
    that enters it, and to the backward pass of operators recorded in it, on any thread. The backward pass of
    operators recorded outside of all scopes gets the scope around the call of ``backward()``.

    A scope takes precedence over the automatic tags of ``spillway.tags.watch()``.

    Args:
        name: components joined by "/", none of them empty, without "*" and control characters; at most 256
            bytes with all the scopes around it.

    Raises:
        TypeError: ``name`` is not a string.
        ValueError: ``name`` is not such a path; at entry.
    """

    def __init__(self, name: str) -> None:
        if not isinstance(name, str):
            raise TypeError(f"tag must be a string, not {name!r}")
        self.name = name

    def _opening(self) -> Opening:
        return functools.partial(glue().push_tag, self.name), glue().pop_tag

    def __repr__(self) -> str:
        return f"tag({self.name!r})"


def matches(pattern: str, path: str) -> bool:
    """Whether a tag, or a parent path of it, matches a pattern, component by component.

    In a component ``*`` stands for any run of characters; ``**`` alone for any number of components. So
    ``activation`` and ``activation/layers.*`` match ``activation/layers.0``, and ``**/mlp`` matches
    ``encoder/1/mlp``.
    """
    for name, value in (("pattern", pattern), ("path", path)):
        if not isinstance(value, str):
            raise TypeError(f"{name} must be a string, not {value!r}")
    return glue().tag_matches(pattern, path)
