# SPDX-License-Identifier: Apache-2.0
"""What several processes have written is one answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from spillway.dry_run.answer import SUFFIX, Answer, read


def process(
    rank: str | None, number: int, step: float | None, moved: int, ended: bool = False
) -> dict[str, Any]:
    device = {
        "peak_allocated_bytes": 100 * number,
        "peak_reserved_bytes": 200 * number,
        "out_of_memory": {"requested_bytes": 1} if ended else None,
    }
    return {
        "process": number,
        "rank": rank,
        "steps": {"median_ms": step},
        "copied_per_step": {"to_host_bytes": moved, "to_device_bytes": 2 * moved},
        "peak_pinned_bytes": 10 * moved,
        "devices": [device],
    }


def written(folder: Path, *processes: dict[str, Any], status: int = 0) -> Answer:
    for each in processes:
        (folder / f"{each['process']}{SUFFIX}").write_text(json.dumps(each))
    return read(folder, "plain", status)


def test_processes_are_in_the_order_of_their_ranks(tmp_path: Path) -> None:
    answer = written(
        tmp_path,
        process("10", 1, 1.0, 0),
        process("2", 2, 1.0, 0),
        process(None, 3, 1.0, 0),
        process("x", 0, 1.0, 0),
    )
    assert [each["rank"] for each in answer.processes] == ["x", None, "2", "10"]


def test_the_slowest_rank_sets_the_step_time_and_all_sum_the_offloaded_bytes(tmp_path: Path) -> None:
    answer = written(
        tmp_path,
        process("0", 1, 7.0, 3),
        process("1", 2, 9.0, 4),
        process("2", 3, None, 5),
        process("3", 4, 8.0, 0),
    )
    assert answer.step_ms == 9.0
    assert (answer.copied("to_host"), answer.copied("to_device"), answer.pinned) == (12, 24, 120)
    assert (answer.peak, answer.reserved) == (400, 800)


@pytest.mark.parametrize(
    ("status", "ended", "fits"), [(0, False, True), (1, False, None), (1, True, False), (0, True, False)]
)
def test_whether_it_fits_is_not_known_of_a_program_that_failed(
    tmp_path: Path, status: int, ended: bool, fits: bool | None
) -> None:
    answer = written(tmp_path, process("0", 1, 1.0, 0), process("1", 2, 1.0, 0, ended), status=status)
    assert answer.fits is fits


def test_nothing_is_known_where_no_process_used_a_gpu(tmp_path: Path) -> None:
    answer = written(tmp_path)
    assert (answer.fits, answer.step_ms, answer.peak, answer.pinned) == (None, None, 0, 0)
