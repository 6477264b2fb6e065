# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests of the demonstration, the figures and the GPU check."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


class Script:
    """A script of the project in a folder of its own, where set-up only leaves a mark."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.copytree(ROOT / "scripts", folder / "scripts")
        shutil.copytree(ROOT / "bench" / "figures", folder / "bench" / "figures")
        for name in ("bootstrap", "build"):
            path = folder / "scripts" / name
            path.write_text('#!/bin/sh\ntouch "$(dirname "$0")/../set-up"\nexit 9\n')
            path.chmod(0o755)

    def run(self, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(self.folder / "scripts" / name), *arguments]
        return subprocess.run(command, capture_output=True, text=True, cwd=self.folder, check=False)

    @property
    def set_up_began(self) -> bool:
        return (self.folder / "set-up").exists()


@pytest.fixture
def script(tmp_path: Path) -> Script:
    return Script(tmp_path)
