# SPDX-License-Identifier: Apache-2.0
"""Regions under data and tensor parallel, in two processes over gloo."""

import functools
import tempfile
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import EMULATED, run
from data_parallel import NAMES, RANKS, WIDTHS

#: Each allocator, and on the emulated GPU one schedule with it.
JOBS = (("spillway", "late"), ("torch", "eager"))

ALL_THAT_CAN_MOVE = 128 * sum(width + 64 for width in WIDTHS) * 4


@functools.cache
def job(allocator, schedule):
    """What each rank found, or how it failed."""
    settings = {"SPILLWAY_EMULATE_SCHEDULE": schedule, "SPILLWAY_EMULATE_CHECK": "1"} if EMULATED else {}
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(RANKS) as pool:
        settings["RENDEZVOUS"] = f"file://{folder}/store"
        source = f"import data_parallel; report(data_parallel.run({allocator!r}))"
        ranks = [pool.submit(run, source, RANK=str(rank), **settings) for rank in range(RANKS)]
        return [rank.exception() or rank.result() for rank in ranks]


@pytest.mark.parametrize(("allocator", "schedule"), JOBS)
@pytest.mark.parametrize("name", NAMES)
def test_two_ranks_whose_activations_move_have_the_bits_of_the_plain_job(name, allocator, schedule):
    ranks = job(allocator, schedule)
    for rank in ranks:
        if isinstance(rank, BaseException):
            raise rank
    for found, reports in ranks:
        equal, out, back, _ = found[name]
        assert equal, found
        assert out >= back > 0, found
        assert not reports, reports


@pytest.mark.parametrize(("allocator", "schedule"), JOBS)
@pytest.mark.parametrize("name", ["half of the bytes", "within a budget"])
def test_ranks_choose_the_same_storages(name, allocator, schedule):
    ranks = job(allocator, schedule)
    for rank in ranks:
        if isinstance(rank, BaseException):
            raise rank
    first, second = (found[name][3] for found, _ in ranks)
    if name == "within a budget":
        # A rank whose second step finds buckets of the first one not yet freed records once more.
        first, second = first[-3:], second[-3:]
    assert first == second and min(first) > 0, (first, second)
    # Beside workspaces, pages take what a small budget leaves: everything moves.
    assert (name == "within a budget" or first[-1] < ALL_THAT_CAN_MOVE) and first[-1] == first[-2], first
