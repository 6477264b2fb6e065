# SPDX-License-Identifier: Apache-2.0
"""The demonstration, run with --report, and what a reader learns from the page alone."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from conftest import CLOCK
from launched import clean_environment, spillway
from spillway.demo import model
from test_page import parse

SAID = re.compile(
    r"Peak of device memory: [^(]*\((\d+) bytes\)\. Without offload it would have been [^(]*\((\d+) bytes\)"
    r".*?The largest offloaded storage: [^(]*\((\d+) bytes\), tag (\S+), made by ([\w, ]+), saved at (\S+) "
    r"in (\w+)\. "
    r"It was offloaded (\d+) times and cost ([\d.]+) ms of copies out, ([\d.]+) ms of copies in"
)


class Demo(NamedTuple):
    variants: dict[str, Any]  # by ratio, as the demonstration itself reports them
    parts: list[str]  # the page's words, by variant


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    folder = tmp_path_factory.mktemp("demo")
    command = [sys.executable, "-m", "spillway", "emulate", *CLOCK, "--report", folder / "out", "--"]
    command += [sys.executable, "-m", "spillway.demo", "--device", "emulated", "--steps", "3"]
    summary = folder / "demo.json"
    done = subprocess.run(
        [*command, "--json", summary], env=clean_environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    shown = spillway("report", folder / "out")
    assert shown.returncode == 0, shown.stderr
    variants = {str(variant["ratio"]): variant for variant in json.loads(summary.read_text())["variants"]}
    words = " ".join(" ".join(parse(folder / "out" / "report.html").words).split())
    parts = re.split("(?=Peak of device memory: )", words)[1:]
    assert len(parts) == len(variants) == 3
    return Demo(variants, parts)


def test_the_page_of_a_demonstration_states_peaks_and_the_largest_storage_with_source_and_cost(
    demo: Demo,
) -> None:
    size = model.SIZES["demo"]
    plain = demo.variants["0.0"]["peak_allocated_bytes"]
    for ratio, part in zip(("0.5", "1.0"), demo.parts[1:], strict=True):
        found = SAID.search(part)
        assert found is not None, part[:800]
        peak, without, largest, tag, makers, place, function, times, out, back = found.groups()
        assert int(peak) == demo.variants[ratio]["peak_allocated_bytes"] < plain
        assert int(without) == plain
        # What the wide layer of a block gives, and what its activation makes of it.
        assert int(largest) == size.batch * size.context * 4 * size.width * 4
        assert (tag, {*makers.split(", ")} <= {"Addmm", "Gelu"}) == ("demo", True)
        path, line = place.split(":")
        assert (path, function) == ("demo/model.py", "forward")
        written = Path(model.__file__).read_text().splitlines()[int(line) - 1]
        assert "self.down(self.act(self.up(" in written
        # At 1 GiB/s; a copy also has its latency.
        expected = int(times) * int(largest) / 2**30 * 1e3
        assert all(expected <= float(cost) <= 1.05 * expected for cost in (out, back))
