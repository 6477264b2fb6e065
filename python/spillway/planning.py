# SPDX-License-Identifier: Apache-2.0
"""The plan of a budget, its cost, and the bound of any plan."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from spillway._load import glue
from spillway._resident_reasons import class_lines, reason_lines
from spillway._summary import device_index
from spillway.report.sizes import size
from spillway.statistics import stats

__all__ = ["LIMITS", "Explanation", "PlanPoint", "explain"]

LIMITS = {
    "compute": "computing",
    "recompute": "recomputing",
    "link out": "the link to the host",
    "link in": "the link to the GPU",
}


@dataclass(frozen=True)
class PlanPoint:
    """One budget and its plan. Sizes are bytes.

    Times are predicted seconds, from the first saved storage to the end of the backward pass. ``bound`` is a
    lower bound of any plan's time. ``limit`` names the resource that sets it.
    """

    budget: int
    peak: int
    kept: int
    offloaded: int
    recomputed: int
    seconds: float
    compute: float
    recompute: float
    stall_out: float
    stall_in: float
    bound: float
    limit: str

    @property
    def optimality(self) -> float:
        """Optimality: bound ÷ predicted time; 1 for an optimal plan."""
        return self.bound / self.seconds if self.seconds else 1.0

    @property
    def slowdown(self) -> float:
        """Predicted time ÷ time with everything kept."""
        return self.seconds / self.compute if self.compute else 1.0


@dataclass(frozen=True)
class Explanation:
    """The plan of a budget's last planned step, and a curve of other budgets, smallest first."""

    tag: str
    device: int
    chosen: PlanPoint
    curve: tuple[PlanPoint, ...]
    storages: int
    link_out: float  # bytes per second, measured
    link_in: float
    taken: float | None  # seconds that steps with this plan take (median of the last 9); none until one has
    #: As ``spillway.stats()["model_state"]``, of all GPUs; None if it was read from a file.
    model_state: dict[str, Any] | None = field(default=None, compare=False)

    @property
    def optimality(self) -> float:
        """Optimality: bound ÷ measured step time, or ÷ predicted time until a step has been measured."""
        return self.chosen.bound / self.taken if self.taken else self.chosen.optimality

    def as_dict(self) -> dict[str, Any]:
        found = {**asdict(self), "optimality": self.optimality}
        del found["model_state"]
        return found

    @staticmethod
    def from_dict(found: dict[str, Any]) -> Explanation:
        names = set(Explanation.__dataclass_fields__) - {"chosen", "curve", "model_state"}
        return Explanation(
            chosen=PlanPoint(**found["chosen"]),
            curve=tuple(PlanPoint(**point) for point in found["curve"]),
            **{name: found[name] for name in names},
        )

    def __str__(self) -> str:
        lines = [*self._head(), "", _row(_TITLES), *map(self._line, self.points)]
        if self.model_state is not None:
            classes, reasons = class_lines(self.model_state["classes"]), reason_lines(self.model_state)
            lines += ["", "Model state now:", *classes] if classes else []
            lines += ["", "Model state that stays on the GPU:", *reasons] if reasons else []
        return "\n".join(lines)

    def _head(self) -> list[str]:
        chosen = self.chosen
        title = f"Plan of {self.tag!r} on GPU {self.device}: {self.storages} storages"
        took = f"took {_ms(self.taken)}" if self.taken else "with this plan have not been timed yet"
        return [
            title,
            f"peak {size(chosen.peak)} within {size(chosen.budget)}; resident {size(chosen.kept)}, offloaded "
            f"{size(chosen.offloaded)}, recomputed {size(chosen.recomputed)}",
            f"predicted {_ms(chosen.seconds)}: compute {_ms(chosen.compute)}, recomputation "
            f"{_ms(chosen.recompute)}, waiting for copies out {_ms(chosen.stall_out)}, for copies in "
            f"{_ms(chosen.stall_in)}; the last steps {took}",
            self.optimality_in_words,
            f"measured link: {self.link_out / 1e9:.4g} GB/s out, {self.link_in / 1e9:.4g} GB/s in",
        ]

    @property
    def optimality_in_words(self) -> str:
        """The optimality and its limit, on one line."""
        faster = self.optimality > 1 and self.taken is not None
        bound = "by the recorded times no plan could take" if faster else "no plan could take"
        return (
            f"optimality {self.optimality:.1%}: {bound} less than {_ms(self.chosen.bound)}, because of "
            f"{LIMITS[self.chosen.limit]}{'; the last steps were faster than recorded' if faster else ''}"
        )

    @property
    def points(self) -> list[PlanPoint]:
        """The curve, including the chosen point."""
        return sorted({*self.curve, self.chosen}, key=lambda point: point.budget)

    def _line(self, point: PlanPoint) -> str:
        cells = [
            size(point.budget) + (" *" if point == self.chosen else "  "),
            size(point.kept),
            size(point.offloaded),
            size(point.recomputed),
            _ms(point.seconds),
            f"{point.slowdown:.3f}",
            f"{point.optimality:.1%}",
            LIMITS[point.limit],
        ]
        return _row(cells)


_TITLES = ["budget  ", "resident", "offloaded", "recomputed", "step", "relative", "optimality", "limited by"]
_WIDTHS = (13, 10, 10, 10, 10, 9, 10)


def _row(cells: list[str]) -> str:
    padded = [cell.rjust(width) for cell, width in zip(cells, _WIDTHS, strict=False)]
    return " ".join([*padded, " " + cells[-1]])


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.4g} ms"


def explain(tag: str | None = None, device: Any = None, points: int = 13) -> Explanation | None:
    """The plan of the last planned step of ``spillway.offload``, and the predicted cost of other budgets.

    ``print(spillway.explain())`` shows both. Returns None if there is no plan yet, or if the recorded step
    could not be timed.

    Args:
        tag: the tag of the region; in a job with ``--budget`` it is ``"job"``. Default: the only
            tag that has a plan.
        device: which GPU; default: the current one.
        points: number of budgets, equally spaced from the smallest feasible one to the memory that the step
            needs with everything kept.

    Raises:
        ValueError: the GPU does not exist, `points` is not from 2 to 1000, or several tags have plans and
            none is given.
    """
    if isinstance(points, bool) or not isinstance(points, int) or not 2 <= points <= 1000:
        raise ValueError(f"points must be an integer from 2 to 1000, not {points!r}")
    index = device_index(device)
    tags = glue().stats()["tags"] if tag is None else (tag,)
    plans = [plan for each in tags if (plan := _explain(each, index, points)) is not None]
    if len(plans) > 1:
        names = ", ".join(repr(each.tag) for each in plans)
        raise ValueError(f"tag None: several tags have plans: {names}. Pass one of them.")
    return plans[0] if plans else None


def _explain(tag: str, device: int, points: int) -> Explanation | None:
    found = glue().explain(tag, device, points)
    if found is None:
        return None
    return Explanation(
        tag,
        device,
        PlanPoint(**found["chosen"]),
        tuple(PlanPoint(**point) for point in found["curve"]),
        found["storages"],
        found["out"],
        found["in"],
        found["taken"],
        dict(stats()["model_state"]),
    )
