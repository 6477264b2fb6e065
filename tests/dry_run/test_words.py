# SPDX-License-Identifier: Apache-2.0
"""Figures and their words, of accounting that no program has written."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from spillway.dry_run import words
from spillway.dry_run.answer import missing
from spillway.dry_run.emulator import KINDS, Block, Ended
from spillway.dry_run.figures import Moment, measured_steps, process_figures, steps_of

BLOCKS = [
    Block(300, "activations", "aten::mul", "a.py:1 in f, a.py:9 in g"),
    Block(100, "activations", "aten::mul", "a.py:1 in f, a.py:9 in g"),
    Block(90, "activations", "aten::mul", "a.py:1 in f, a.py:8 in g"),
    Block(50, "parameters", "", ""),
]


class Accounting:
    def at_peak(self, _: int) -> list[Block]:
        return BLOCKS

    def out_of_memory(self, _: int) -> Ended | None:
        return Ended(2, Block(1000, "other", "aten::empty", "backward of a.py:2 in h"), 500)


def moment(end: float, products: float, to_host: int = 0) -> Moment:
    return Moment([end], [[products if kind == "products" else 0.0 for kind in KINDS]], to_host, 0)


def figures_of(*moments: Moment, end: Moment) -> tuple[dict[str, Any], dict[str, Any]]:
    figures = process_figures(Accounting(), True, moments, end)
    (device,) = figures["devices"]
    return figures, device


def test_the_first_step_counts_only_where_there_is_no_other() -> None:
    assert steps_of([moment(1, 0)]) == {
        "count": 0,
        "measured": 0,
        "first_ms": None,
        "median_ms": None,
    }
    assert steps_of([moment(1, 0), moment(6, 0)]) == {
        "count": 1,
        "measured": 1,
        "first_ms": 5,
        "median_ms": 5,
    }
    later = [moment(end, 0) for end in (1, 11, 13, 14, 18)]
    assert steps_of(later) == {"count": 4, "measured": 3, "first_ms": 10, "median_ms": 2}


def test_a_step_ends_with_the_last_of_its_devices() -> None:
    idle = [[0.0] * len(KINDS)] * 2
    ends = [Moment([at, 2 * at], idle, 0, 0) for at in (0, 4, 5)]
    assert steps_of(ends) == {"count": 2, "measured": 1, "first_ms": 8, "median_ms": 2}


def planned(end: float, *plan: int, to_host: int = 0) -> Moment:
    return Moment([end], [[0.0] * len(KINDS)], to_host, 0, (("job", *plan),))


BEGINNING = moment(0, 0)
RECORDED = [planned(30, 0, 9, 0), planned(50, 2, 9, 0)]
FOLLOWED = [planned(53, 4, 5, 0), planned(55, 4, 5, 0)]


def test_with_a_budget_steps_count_that_follow_one_plan() -> None:
    assert measured_steps([BEGINNING, *RECORDED]) == range(0)
    assert measured_steps([BEGINNING, *RECORDED, FOLLOWED[0]]) == range(0)
    assert measured_steps([BEGINNING, *RECORDED, *FOLLOWED]) == range(2, 4)
    replaced = planned(60, 5, 1, 0)
    assert measured_steps([BEGINNING, *RECORDED, *FOLLOWED, replaced]) == range(2, 4)
    assert measured_steps([BEGINNING, *RECORDED, *FOLLOWED, replaced, replaced]) == range(4, 6)


def test_steps_that_offload_and_steps_that_keep_are_not_averaged() -> None:
    def at(end: float, to_host: int, *, keeps: bool) -> Moment:
        return replace(moment(end, 0, to_host), keeps=keeps)

    begun = [BEGINNING, at(9, 70, keeps=False), at(12, 140, keeps=False), at(15, 210, keeps=False)]
    kept = [at(17, 210, keeps=True), at(19, 210, keeps=True)]
    assert measured_steps(begun) == measured_steps([*begun, kept[0]]) == range(1, 3)
    figures = process_figures(Accounting(), True, [*begun, *kept], kept[-1])
    assert figures["copied_per_step"]["to_host_bytes"] == 0
    assert figures["steps"]["median_ms"] == 2


def test_what_recorded_steps_took_and_copied_is_no_figure_of_a_budget() -> None:
    steps = [BEGINNING, *RECORDED, planned(53, 4, 5, 0, to_host=900), planned(55, 4, 5, 0, to_host=905)]
    figures = process_figures(Accounting(), True, steps, steps[-1])
    assert figures["steps"]["median_ms"] == 2.5
    assert figures["copied_per_step"]["to_host_bytes"] == 905 // 2


def test_a_budget_that_has_not_settled_has_no_time_and_states_why() -> None:
    process = {"steps": steps_of([BEGINNING, *RECORDED, FOLLOWED[0]])}
    assert process["steps"]["median_ms"] is None
    assert words.unsettled(process).startswith(
        "unknown: a budget's first steps differ, and of 3 steps no two in a row"
    )
    assert words.unsettled(process).endswith(" same bytes. Let the program take more steps")
    assert words.unsettled(process, failed=True).endswith(" same bytes")


def test_a_missed_budget_is_the_reason_that_a_program_does_not_fit() -> None:
    _, device = figures_of(moment(0, 0), end=moment(1, 0))
    device |= {"capacity_bytes": 4096, "peak_allocated_bytes": 500, "peak_reserved_bytes": 512}
    device["out_of_memory"] = None
    process = {
        "steps": steps_of([]),
        "copied_per_step": {"to_host_bytes": 0, "to_device_bytes": 0},
        "peak_pinned_bytes": 0,
        "budget_missed": "budget 300 bytes is too small",
    }
    facts = dict(words.facts(process, device, None, failed=True))
    assert facts["fits"] == "not within the budget: budget 300 bytes is too small"


def test_each_kind_of_work_has_its_share() -> None:
    busy = dict(zip(KINDS, (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0), strict=True))
    after = Moment([20.0], [list(busy.values())], 0, 0)
    shares = figures_of(moment(0, 0), after, end=after)[1]["shares"]
    assert shares == pytest.approx(
        {
            "products": 0.1,
            "attention": 0.35,
            "memory_bound": 0.05,
            "idle": 0.5,  # beside copies and collectives
            "copies_to_device": 0.25,
            "copies_to_host": 0.3,
            "collectives": 0.35,
        }
    )


def test_shares_and_copies_are_of_the_steps_after_the_first() -> None:
    moments = [moment(0, 0), moment(100, 90, 1000), moment(110, 94, 1010), moment(120, 100, 1030)]
    figures, device = figures_of(*moments, end=moment(999, 999, 9999))
    assert device["shares"]["products"] == pytest.approx(0.5)
    assert device["shares"]["idle"] == pytest.approx(0.5)
    assert figures["copied_per_step"] == {"to_host_bytes": 15, "to_device_bytes": 0}


def test_without_a_step_they_are_of_all_of_the_program() -> None:
    figures, device = figures_of(moment(0, 0), end=moment(50, 10, 70))
    assert device["shares"]["products"] == pytest.approx(0.2)
    assert figures["copied_per_step"]["to_host_bytes"] == 70
    assert figures_of(moment(0, 0), end=moment(0, 0))[1]["shares"] == {}


def test_blocks_are_added_up_by_what_made_them() -> None:
    _, device = figures_of(moment(0, 0), end=moment(1, 0))
    assert device["allocated_at_peak_bytes"] == {"activations": 490, "parameters": 50}
    assert [
        (each["bytes"], each["blocks"], each["largest_block_bytes"]) for each in device["largest_at_peak"]
    ] == [
        (400, 2, 300),
        (90, 1, 90),
        (50, 1, 50),
    ]


def test_a_maker_has_the_fewest_lines_that_distinguish_it() -> None:
    _, device = figures_of(moment(0, 0), end=moment(1, 0))
    assert words.makers(device["largest_at_peak"]) == [
        "mul at a.py:1 in f, a.py:9 in g",
        "mul at a.py:1 in f, a.py:8 in g",
        "unknown",
    ]
    assert words.maker(device["out_of_memory"]) == "empty, backward of a.py:2 in h"


def test_blocks_are_counted_with_their_size() -> None:
    each = {"blocks": 1, "bytes": 1024, "largest_block_bytes": 1024}
    assert words.blocks(each) == "1"
    assert words.blocks(each | {"blocks": 4, "bytes": 4096}) == "4 of 1.0 KiB"
    assert words.blocks(each | {"blocks": 5, "bytes": 4096}) == "5, up to 1.0 KiB"


def test_a_program_that_failed_does_not_fit_nor_not() -> None:
    _, device = figures_of(moment(0, 0), end=moment(1, 0))
    device |= {"capacity_bytes": 4096, "peak_allocated_bytes": 500, "peak_reserved_bytes": 512}
    device["out_of_memory"] = None
    process = {
        "steps": steps_of([]),
        "copied_per_step": {"to_host_bytes": 0, "to_device_bytes": 0},
        "peak_pinned_bytes": 0,
    }
    assert dict(words.facts(process, device, None))["fits"] == "yes"
    failed = dict(words.facts(process, device, None, failed=True))
    assert failed["fits"] == "unknown: the program failed for another reason"


@pytest.mark.parametrize(
    ("capacity", "expandable", "said", "short"),
    [
        (
            1024,
            False,
            "476 B more than available; memory ran out 2 times. --compare plain shows what the whole "
            "program needs",
            476,
        ),
        (2048, False, "enough was free, but not as one block (expandable_segments:True can help); m", None),
        (2048, True, "enough was free, but not as one block; memory ran out", None),
    ],
)
def test_an_exceeded_device_is_reported_with_the_missing_bytes(
    capacity: int, expandable: bool, said: str, short: int | None
) -> None:
    _, device = figures_of(moment(0, 0), end=moment(1, 0))
    device |= {
        "capacity_bytes": 4096,
        "available_bytes": capacity,
        "peak_allocated_bytes": 500,
        "peak_reserved_bytes": 512,
    }
    process = {
        "steps": steps_of([]),
        "copied_per_step": {"to_host_bytes": 0, "to_device_bytes": 0},
        "peak_pinned_bytes": 3 << 30,
        "expandable_segments": expandable,
    }
    assert missing(device) == short
    facts = dict(words.facts(process, device, None))
    assert facts["fits"].startswith("no: with 500 B allocated, 1000 B were requested by empty, backward of ")
    assert said in facts["fits"]
    assert facts["step"] == "unknown: no optimizer completed a step"
    assert facts["host"] == "3.0 GiB of its memory pinned at the peak"
    assert "host" not in dict(words.facts({**process, "peak_pinned_bytes": 4096}, device, None))
