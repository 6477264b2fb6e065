# SPDX-License-Identifier: Apache-2.0
"""Every figure that the project claims, each registered once."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from rich.table import Table

from bench.results import table

_COMPARISONS = {"=": operator.eq, "<=": operator.le, ">=": operator.ge}
NEEDS = ("cpu", "emulated", "gpu")


class Session(Protocol):
    """What a figure may ask of the run it is measured in; see session.py."""

    def demo(self, allocator: str = "spillway") -> dict: ...

    def probe(self, name: str, *arguments: str) -> dict: ...

    def preloaded(self, name: str, *arguments: str) -> dict: ...

    def dry(self, profile: str, name: str, *arguments: str) -> dict: ...

    def benchmark(self, program: str) -> dict[str, float]: ...

    def program(self, name: str, *arguments: str) -> dict: ...

    def instructions(self, name: str, inside: str, *arguments: str) -> int: ...


@dataclass(frozen=True)
class Bound:
    """`<= 1.1`, `>= 0.9` or `= 0`; a figure that keeps it is ok, otherwise short."""

    text: str

    def __post_init__(self) -> None:
        comparison, _, limit = self.text.partition(" ")
        if comparison not in _COMPARISONS:
            raise ValueError(f"bound {self.text!r}: expected one of {', '.join(_COMPARISONS)} and a number")
        float(limit)

    def keeps(self, value: float) -> bool:
        comparison, _, limit = self.text.partition(" ")
        return bool(_COMPARISONS[comparison](value, float(limit)))


def entry(name: str, value: float | None, bound: Bound, unit: str = "", **more: Any) -> dict[str, Any]:
    """What a document holds of a figure or a claim, which is short without a value."""
    keeps = value is not None and bound.keeps(value)
    status = "ok" if keeps else "short"
    return {"name": name, "value": value, "unit": unit, "bound": bound.text, "status": status, **more}


def show(title: str, entries: Iterable[dict[str, Any]]) -> Table:
    keys = ("bound", "unit", "status")
    rows = (
        (each["name"], "-" if each["value"] is None else f"{each['value']:.4g}", *(each[key] for key in keys))
        for each in entries
    )
    return table(title, ("", "value", *keys), rows)


def all_kept(entries: Iterable[dict[str, Any]]) -> bool:
    return all(each["status"] != "short" for each in entries)


@dataclass(frozen=True)
class Figure:
    name: str
    unit: str
    bound: Bound
    needs: str  # the least it needs: an emulated figure is measured on a GPU where there is one
    claim: str
    measure: Callable[[Session], float]


FIGURES: dict[str, Figure] = {}


def figure(name: str, unit: str, bound: str, needs: str) -> Callable[[Callable[[Session], float]], Callable]:
    """Registers the decorated function; its docstring is the claim in words."""

    def register(measure: Callable[[Session], float]) -> Callable[[Session], float]:
        if name in FIGURES:
            raise ValueError(f"figure {name} is registered twice")
        if needs not in NEEDS:
            raise ValueError(f"figure {name} needs {needs}: expected one of {', '.join(NEEDS)}")
        claim = (measure.__doc__ or "").strip()
        if not claim:
            raise ValueError(f"figure {name} has no claim: write the function's docstring")
        FIGURES[name] = Figure(name, unit, Bound(bound), needs, claim, measure)
        return measure

    return register
