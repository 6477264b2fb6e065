# SPDX-License-Identifier: Apache-2.0
"""What a script may ask of the emulated GPU."""

from __future__ import annotations

import sys

import pytest
from conftest import spillway
from spillway import emulator

ASK = """
import sys
from spillway import emulator
print(emulator.is_emulated(), emulator.is_dry_run(), "torch" in sys.modules)
"""


@pytest.mark.parametrize(
    ("command", "said"),
    [("emulate", "True False False"), ("dry-run", "True True False")],
)
def test_a_command_of_the_emulated_gpu_is_recognized(command: str, said: str) -> None:
    result = spillway(command, "--", sys.executable, "-c", ASK)
    assert result.returncode == 0, result.stderr
    assert result.stdout == f"{said}\n"


def test_without_the_launcher_nothing_is_emulated() -> None:
    assert (emulator.is_emulated(), emulator.is_dry_run()) == (False, False)
