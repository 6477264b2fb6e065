# SPDX-License-Identifier: Apache-2.0
"""What `spillway fit` tries. Imports no torch."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from spillway.dry_run.alternatives import Alternative

__all__ = ["Candidate", "Search", "candidates"]


@dataclass(frozen=True)
class Candidate:
    """One way to run the program on one GPU."""

    gpu: str  # a profile's name or file
    values: dict[str, str]  # of the variables in the command
    way: Alternative

    @property
    def name(self) -> str:
        values = (f"{name}={value}" for name, value in self.values.items())
        return ", ".join((self.gpu, *values, self.way.name))

    def filled(self, command: Sequence[str]) -> list[str]:
        """The command with this candidate's values in place of `{NAME}`."""
        return [self._filled(word) for word in command]

    def _filled(self, word: str) -> str:
        for name, value in self.values.items():
            word = word.replace(f"{{{name}}}", value)
        return word

    def to_run(self, command: Sequence[str]) -> str:
        """The command line that runs the program so; empty where the program itself has to be changed."""
        if self.way.checkpoint:
            return ""
        name, _, value = self.way.name.partition("=")
        option = "" if name == "plain" else f"spillway run --{name}{' ' * bool(value)}{value} -- "
        return option + shlex.join(self.filled(command))


@dataclass(frozen=True)
class Search:
    """`samples`: the factors of the samples in a step, numbers and names of variables; empty if unknown."""

    gpus: dict[str, Mapping[str, str]]  # with the environment of a dry run on it
    variables: dict[str, tuple[str, ...]]
    ways: tuple[Alternative, ...]
    samples: tuple[str, ...] = ()
    steps: int | None = None
    output: str | None = None  # of the JSON; "-" for stdout

    def samples_of(self, candidate: Candidate) -> float | None:
        if not self.samples:
            return None
        product = 1.0
        for factor in self.samples:
            product *= float(candidate.values.get(factor, factor))
        return product


def candidates(search: Search) -> Iterator[Candidate]:
    """By GPU, then by values, then by way."""
    names = list(search.variables)
    for gpu, values, way in itertools.product(
        search.gpus, itertools.product(*search.variables.values()), search.ways
    ):
        yield Candidate(gpu, dict(zip(names, values, strict=True)), way)
