# SPDX-License-Identifier: Apache-2.0
"""The comparison of exports with version scripts finds both kinds of difference."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from check_exports import differences, listed

SCRIPT = """
{
  global:
    spillway_a; /* the entry point */
    cuda*;
  local: *;
};
"""


def test_the_global_names_of_a_version_script_are_read() -> None:
    assert listed(SCRIPT) == ["spillway_a", "cuda*"]


def test_a_stray_export_is_named() -> None:
    assert differences("x.so", {"spillway_a", "cudaFree", "_ZSt4cout"}, listed(SCRIPT)) == [
        "x.so: exports _ZSt4cout, which its version script does not list"
    ]


def test_a_missing_export_is_named() -> None:
    assert differences("x.so", {"cudaFree"}, listed(SCRIPT)) == [
        "x.so: does not export spillway_a, which its version script lists"
    ]


def test_the_same_names_are_no_difference() -> None:
    assert differences("x.so", {"spillway_a", "cudaFree"}, listed(SCRIPT)) == []
