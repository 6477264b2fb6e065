# SPDX-License-Identifier: Apache-2.0
"""The tests here run on the emulated GPU, which is preloaded."""

import ctypes
import os
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))


def pytest_sessionstart(session):
    here = hasattr(ctypes.CDLL(None), "spillway_emulator_ready")
    if not here or os.environ.get("SPILLWAY_EMULATE") != "1":
        pytest.exit("run these tests with ctest -R opinfo, or as in tests/opinfo/README.md", returncode=2)
