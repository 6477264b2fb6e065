# SPDX-License-Identifier: Apache-2.0
"""PyTorch's operator database: results, gradients, in-place and out= forms are the CPU's, bit for bit."""

import functools
import json
import os
import pathlib
import subprocess
import sys
import types

import pytest
from known import DISAGREEMENTS, UNSTABLE

#: Every N-th entry is compared, and all that disagree.
EVERY = os.environ.get("OPINFO_EVERY", "5")
DTYPES = list(DISAGREEMENTS)


@functools.cache
def outcomes(dtype):
    # A process of its own: samples record the stack that makes them, which is deep inside pytest.
    done = subprocess.run(
        [
            *(sys.executable, pathlib.Path(__file__).with_name("census.py"), "--json", "--dtype", dtype),
            *("--every", EVERY, "--also", *DISAGREEMENTS[dtype]),
        ],
        env={**os.environ, "SPILLWAY_EMULATE_RNG": "cpu"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout[-500:] + done.stderr
    return [types.SimpleNamespace(**json.loads(line)) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("dtype", DTYPES)
def test_only_what_is_listed_disagrees(dtype):
    found = {o.name: f"{o.state}: {o.why}" for o in outcomes(dtype) if o.state in ("differs", "raises")}
    unexpected = {name: why for name, why in found.items() if name not in {*DISAGREEMENTS[dtype], *UNSTABLE}}
    assert unexpected == {}


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_listed_does_disagree(dtype):
    states = {o.name: o.state for o in outcomes(dtype)}
    assert [name for name in DISAGREEMENTS[dtype] if states.get(name) not in ("differs", "raises")] == []


@pytest.mark.parametrize(
    ("dtype", "entries", "forwards", "gradients"),
    [
        ("float32", 680, 3300, 3400),
        ("bfloat16", 550, 2600, 2900),
    ],
)
def test_the_comparison_is_of_many_results_and_gradients(dtype, entries, forwards, gradients):
    ran = [o for o in outcomes(dtype) if o.state != "unsupported"]
    every = int(EVERY)
    assert len(ran) >= entries // every
    assert sum(o.forwards for o in ran) >= forwards * 0.9 // every
    assert sum(o.gradients for o in ran) >= gradients * 0.9 // every
