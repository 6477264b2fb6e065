# SPDX-License-Identifier: Apache-2.0
"""Which versions of torch are supported, defined once and alike everywhere."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from spillway import _load
from spillway._torch_versions import NEWEST, OLDEST

ROOT = Path(__file__).parents[2]
(BUILT,) = _load.built_for()


def test_the_package_asks_for_the_supported_range() -> None:
    major, minor = NEWEST.split(".")
    metadata = (ROOT / "pyproject.toml").read_text()
    assert f'"torch>={OLDEST},<{major}.{int(minor) + 1}"' in metadata


def test_a_build_brings_no_torch_of_its_own() -> None:
    (requires,) = re.findall(r"^requires = (\[.*\])$", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert "torch" not in requires


def test_the_torch_that_it_was_built_for_is_fine() -> None:
    assert _load.supported(BUILT)
    assert _load.why_not(f"{BUILT}.0") == _load.why_not(f"{BUILT}.1+cu130") == ""


@pytest.mark.parametrize("version", ["2.10.0", "2.16.0", "2.9.1+cu126", "2.110.0", "3.0.0"])
def test_an_unsupported_torch_is_reported_the_range(version: str) -> None:
    assert not _load.supported(version)
    why = _load.why_not(version)
    assert why.startswith(f"torch {version}: ") and f"torch {BUILT};" in why
    assert f"torch {OLDEST} to {NEWEST}" in why and _load.REBUILD in why


def test_a_supported_torch_that_it_was_not_built_for_is_reported_how_to_build() -> None:
    version = next(other for other in (OLDEST, NEWEST) if other != BUILT) + ".0"
    assert _load.supported(version)
    why = _load.why_not(version)
    assert why.startswith(f"torch {version}: ") and f"torch {BUILT}." in why
    assert f"torch {OLDEST} to {NEWEST}" in why and _load.REBUILD in why


@pytest.mark.parametrize("script", ["bootstrap", "build", "test"])
@pytest.mark.parametrize("version", ["2.10.0", "2.16.0", "2.15", "newest"])
def test_the_scripts_refuse_another_version_in_one_line(script: str, version: str) -> None:
    command = [str(ROOT / "scripts" / script), "--torch", version]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(
        f"scripts/{script}: --torch {version}: expected a version from 2.11.0 to 2.15"
    )
    assert done.stderr.count("\n") == 1
