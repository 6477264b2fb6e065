# SPDX-License-Identifier: Apache-2.0
"""Names for memory: scopes that a program opens."""

from __future__ import annotations

import functools
from contextlib import ContextDecorator

from spillway._load import glue
from spillway._scope import Opening, Scope

__all__ = ["matches", "tag"]


class tag(Scope, ContextDecorator):
    """Memory that is allocated inside belongs to this name; also a decorator.

    Scopes nest: inside ``tag("encoder")``, ``tag("mlp")`` is "encoder/mlp". A scope holds for the thread
    that enters it, and for the backward pass of what is recorded in it, whichever thread runs that. The
    backward of what was recorded outside all scopes belongs to the scope around the call of ``backward()``.

    A scope names more strongly than the roles that ``spillway.tags.watch()`` gives.

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
    """Whether a tag, or one that it lies in, fits a pattern, component by component.

    In a component "*" stands for any run of characters; "**" alone for any number of components. So
    "activation" fits "activation/layers.0", "activation/layers.*" does, and "**/mlp" fits "encoder/1/mlp".
    """
    for name, value in (("pattern", pattern), ("path", path)):
        if not isinstance(value, str):
            raise TypeError(f"{name} must be a string, not {value!r}")
    return glue().tag_matches(pattern, path)
