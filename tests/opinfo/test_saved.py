# SPDX-License-Identifier: Apache-2.0
"""Each operator of PyTorch's database has plain's gradients, however its saved tensors are handled."""

import functools
import json
import os
import pathlib
import subprocess
import sys

import pytest
from saved import MODES
from test_census import EVERY


@functools.cache
def outcome():
    # A process of its own: samples record the stack that makes them, which is deep inside pytest.
    done = subprocess.run(
        [sys.executable, pathlib.Path(__file__).with_name("saved.py"), "--every", EVERY],
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout[-500:] + done.stderr
    *wrong, counts = (json.loads(line) for line in done.stdout.splitlines())
    return {each["name"]: each["wrong"] for each in wrong}, counts


@pytest.mark.parametrize("mode", MODES)
def test_every_operator_has_plains_gradients(mode):
    wrong, _ = outcome()
    assert {name: modes[mode] for name, modes in wrong.items() if mode in modes} == {}


def test_the_comparison_is_of_many_operators_and_gradients():
    _, counts = outcome()
    assert counts["operators"] >= 400 * 0.9 // int(EVERY)
    assert counts["gradients"] >= 1500 * 0.9 // int(EVERY)
