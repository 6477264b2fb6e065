# SPDX-License-Identifier: Apache-2.0
"""Jobs of several ranks on one machine, dry."""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from conftest import HERE, spillway

RANKS = 2
BYTES = 1 << 30
WEIGHTS = 4 * 4096 * 4096 * 4  # of the program's model
PEERS = 1e11
SLOW = 1e9  # a step is little else
RATES = "memory=1e18,half=1e15,single=1e15,product=1,peers={}"


def run(what: str, *options: str | Path, peers: float = PEERS) -> Any:
    """What the first rank found, in a launch of its own."""
    dry = ("dry-run", "--memory", "64GiB", "--devices", str(RANKS))
    ranks = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS))
    done = spillway(*dry, "--rates", RATES.format(peers), *options, "--", *ranks, HERE / "ranks.py", what)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@cache
def collectives() -> Any:
    return run("collectives")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """trained(what, peers): the figures of a training job's processes."""

    @cache
    def processes(what: str, peers: float) -> list[dict[str, Any]]:
        answer = tmp_path_factory.mktemp("ranks") / "answer.json"
        run(what, "--json", answer, peers=peers)
        found: list[dict[str, Any]] = json.loads(answer.read_text())["runs"][0]["processes"]
        assert [each["rank"] for each in found] == ["0", "1"]
        return found

    return processes


def test_collectives_take_the_time_of_the_bytes_that_leave_a_rank() -> None:
    found = collectives()["times"]

    all_ms = BYTES / PEERS * 1e3  # for all of the bytes
    part = (RANKS - 1) / RANKS
    shares = {
        "all_reduce": 2 * part,
        "average": 2 * part,
        "all_gather": part,
        "all_gather_into_tensor": part,
        "reduce_scatter": part,
        "reduce_scatter_tensor": part,
        "all_to_all_single": part,
        "broadcast": 1.0,
        "reduce": 1.0,
    }
    # Besides, each has its call and its kernel: some microseconds.
    assert found == pytest.approx({name: share * all_ms for name, share in shares.items()}, rel=0.005)


def test_small_collectives_are_true() -> None:
    assert collectives()["values"] == {
        "sum": [3.0] * 4,
        "gathered": [0.0, 10.0],
        "objects": [{"rank": 0}, {"rank": 1}],
    }


def test_collectives_run_beside_kernels_until_something_waits() -> None:
    found = collectives()["overlap"]

    collective = BYTES / PEERS * 1e3
    products = 100 * 2 * 4096**3 / 1e15 * 1e3
    assert found["beside"] == pytest.approx(max(collective, products), rel=0.05)
    assert found["after"] == pytest.approx(collective + products, rel=0.1)  # and a launch for each product


def test_ranks_with_copies_of_a_model_exchange_its_gradients(trained: Any) -> None:
    for process in trained("copied", SLOW):
        assert sum(process["copied_per_step"].values()) < 1024  # the exchange is no copy
        assert process["peak_pinned_bytes"] < 1 << 20
        (device,) = process["devices"]
        exchanged = device["shares"]["collectives"] * process["steps"]["median_ms"]
        assert exchanged == pytest.approx(WEIGHTS / SLOW * 1e3, rel=0.01)


def test_sharded_model_takes_its_share_of_each_device(trained: Any) -> None:
    held = {
        what: [each["devices"][0]["allocated_at_peak_bytes"]["parameters"] for each in trained(what, SLOW)]
        for what in ("copied", "sharded")
    }
    assert held["copied"] == [WEIGHTS] * RANKS
    assert held["sharded"] == [WEIGHTS // RANKS] * RANKS


def test_step_waits_for_the_ranks_and_no_longer(trained: Any) -> None:
    fast, slow = (trained("sharded", peers)[0] for peers in (1e15, SLOW))
    # Parameters twice, forward and backward, and gradients once; half of each leaves the rank.
    more = slow["steps"]["median_ms"] - fast["steps"]["median_ms"]
    assert more <= 3 * WEIGHTS / 2 / SLOW * 1e3
    assert more > 0.5 * 3 * WEIGHTS / 2 / SLOW * 1e3
