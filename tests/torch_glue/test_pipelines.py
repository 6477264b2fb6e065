# SPDX-License-Identifier: Apache-2.0
"""Micro-batches under pipeline schedules and data parallel, in two processes over gloo."""

import functools
import tempfile
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import EMULATED, run
from pipelines import NAMES, RANKS

pytestmark = pytest.mark.skipif(
    not EMULATED, reason="needs point-to-point calls of gloo with tensors of the emulated GPU"
)


@functools.cache
def job():
    """What each rank found, or how it failed."""
    settings = {"SPILLWAY_EMULATE_SCHEDULE": "late", "SPILLWAY_EMULATE_CHECK": "1"}
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(RANKS) as pool:
        settings["RENDEZVOUS"] = f"file://{folder}/store"
        source = "import pipelines; report(pipelines.run())"
        ranks = [pool.submit(run, source, RANK=str(rank), **settings) for rank in range(RANKS)]
        return [rank.exception() or rank.result() for rank in ranks]


@pytest.mark.parametrize("checkpointed", (True, False))
@pytest.mark.parametrize("name", NAMES)
def test_two_ranks_with_micro_batches_on_the_host_have_the_bits_of_the_plain_job(name, checkpointed):
    ranks = job()
    for rank in ranks:
        if isinstance(rank, BaseException):
            raise rank
    for found, reports in ranks:
        equal, out, _ = found[f"{name} {checkpointed}"]
        assert equal and out > 0, found
        assert not reports, reports
    assert any(found[f"{name} {checkpointed}"][2] > 0 for found, _ in ranks)
