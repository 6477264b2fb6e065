# SPDX-License-Identifier: Apache-2.0
"""Programs that run under `spillway emulate --check`, each in a process of its own."""

import os
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).parent


@pytest.fixture(scope="session")
def checked():
    """Runs Python with arguments under the checker; options are those of `spillway run`."""

    def run(*arguments, **options):
        chosen = [f"--{name}={value}" for name, value in options.items()]
        path = [str(HERE), os.environ.get("PYTHONPATH", "")]
        return subprocess.run(
            [sys.executable, "-m", "spillway", "emulate", "--check", *chosen, "--", sys.executable]
            + [str(each) for each in arguments],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
            capture_output=True,
            text=True,
            timeout=300,
        )

    return run
